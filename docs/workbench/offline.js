// A service worker for the workbench's folder: its pages come from the network, or, without one, as they were last.
// The runtime is kept by worker.js, under the name below it.
const PAGES = "pellucid-workbench";

addEventListener("install", () => skipWaiting());
addEventListener("activate", (event) => event.waitUntil(clients.claim()));

// The page says what it was loaded from: that was before this could see it.
addEventListener("message", (event) => {
  event.waitUntil(
    caches.open(PAGES).then((kept) =>
      Promise.all(
        event.data.map(async (url) => {
          if (!(await kept.match(url))) await kept.add(url).catch(() => {});
        }),
      ),
    ),
  );
});

addEventListener("fetch", (event) => {
  const { method, url, integrity } = event.request;
  if (method !== "GET" || !url.startsWith(location.origin) || integrity) return;
  event.respondWith(
    fetch(event.request).then(
      (response) => {
        const copy = response.clone();
        if (response.ok) event.waitUntil(caches.open(PAGES).then((kept) => kept.put(url, copy)));
        return response;
      },
      async (error) => {
        const known = await caches.match(event.request, { ignoreSearch: true });
        if (known) return known;
        throw error;
      },
    ),
  );
});
