// A Transformer in two columns: the shape of the name that is pointed at, and its values, once Python has computed them.
// Loaded by that page alone. Python is the workbench's, in a worker, and is loaded when its button is pressed.
"use strict";
(() => {
  const form = document.querySelector(".columns-live");
  const panel = document.querySelector(".columns-shown");
  const said = form.querySelector("[role=status]");
  const folder = new URL(form.dataset.workbench, location.href).href;
  const language = document.documentElement.lang === "ko" ? "ko" : "en";
  const WORDS = {
    en: { loading: "Python is loading: {} of {} files", computing: "Computing …", loss: "Loss of the untrained model: {}. Point at a name.", failed: "Python could not be started: {}", none: "this copy of the site was built without Python" },
    ko: { loading: "파이썬을 불러오는 중: 파일 {}/{}", computing: "계산하는 중 …", loss: "학습하지 않은 모델의 손실: {}. 이름을 가리켜 보세요.", failed: "파이썬을 시작하지 못했습니다: {}", none: "이 사이트는 파이썬 없이 만들어졌습니다" },
  }[language];
  const say = (name, ...given) => given.reduce((text, one) => text.replace("{}", one), WORDS[name]);
  let values = {}, shown;

  // ---- One name at a time
  for (const name of document.querySelectorAll(".two-columns [title]")) {
    name.dataset.shape = name.title; // the panel has it, so no second one over it
    name.removeAttribute("title");
  }
  function show(name) {
    shown?.classList.remove("shown");
    shown = name;
    panel.hidden = !name;
    if (!name) return;
    name.classList.add("shown");
    const value = values[`${name.closest("pre").dataset.of} ${name.textContent}`];
    panel.replaceChildren(name.dataset.shape, ...(value ? [" = ", value] : []));
  }
  const named = (event) => event.target.closest?.(".two-columns [data-shape]");
  addEventListener("pointerover", (event) => named(event) && show(named(event)));
  addEventListener("click", (event) => {
    if (!panel.contains(event.target)) show(named(event));
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") return show(null);
    const box = document.activeElement;
    if (!box.matches(".two-columns pre") || !/^Arrow(Left|Right)$/.test(event.key)) return;
    const names = [...box.querySelectorAll("[data-shape]")];
    if (!names.length) return;
    event.preventDefault();
    const step = event.key === "ArrowRight" ? 1 : -1, at = names.indexOf(shown);
    show(names[at < 0 ? (step > 0 ? 0 : names.length - 1) : (at + step + names.length) % names.length]);
  });

  // ---- Python
  let worker;
  function ask(...what) {
    return new Promise((done, fail) => {
      worker.onerror = () => fail(new Error(`${folder}worker.js`));
      worker.onmessage = ({ data }) => {
        if (data.loaded) said.textContent = data.loaded < data.of ? say("loading", data.loaded, data.of) : say("computing");
        else if ("error" in data) fail(new Error(data.error));
        else done(data.result);
      };
      worker.postMessage({ id: 0, ask: what[0], given: what.slice(1) });
    });
  }
  async function compute(course) {
    said.textContent = say("computing");
    if (!worker) {
      worker = new Worker(`${folder}worker.js`);
      await ask("start", { runtime: course.runtime, library: course.library });
      said.textContent = say("computing");
    }
    const found = JSON.parse(await ask("values", form.querySelector("input").value, language));
    if (found.error) return (said.textContent = found.error);
    values = found.values;
    said.textContent = say("loss", found.loss.toFixed(3));
    form.dataset.ready = "true";
    show(shown);
  }
  form.onsubmit = async (event) => {
    event.preventDefault();
    const button = form.querySelector("button");
    button.disabled = true;
    delete form.dataset.ready;
    try {
      const course = await (await fetch(`${folder}course.json`)).json();
      if (!course.runtime) throw new Error(say("none"));
      for (const part of [course.runtime, course.library]) part.address = new URL(part.address, folder).href;
      await compute(course);
    } catch (error) {
      worker?.terminate();
      worker = undefined;
      said.textContent = say("failed", error.message);
    }
    button.disabled = false;
  };
  form.hidden = location.protocol === "file:"; // from the disk a browser allows no worker
})();
