// What leaves the page: a picture of the card in view, the film as a GIF, a link, and a frame for another page.

import { el } from "../dom.ts";
import type { Language } from "../text.ts";
import { gif } from "./gif.ts";
import { painted } from "./paint.ts";
import type { Look } from "./paint.ts";
import { TEXTS } from "./text.ts";

/** Size of a frame in another page, and milliseconds after which a save's address is given back. */
const [WIDE, HIGH, KEPT] = [760, 620, 10_000];
interface Shared {
  language: Language;
  /** What is below a picture, and in the names of files. */
  words: () => string;
  title: () => string;
  look: () => Look;
  film?: Filmed | undefined;
  /** Whether the page can be a frame in another: see `embedded`. */
  embeds?: boolean;
}

interface Filmed {
  /** How many there are now; 0: none that could be filmed yet. */
  frames: () => number;
  /** Hundredths of a second of a frame. */
  pace: number;
  /** Show each frame of the film in turn, and call `draw`. */
  each: (draw: (frame: number) => void) => Promise<void>;
}

/** The card of which most is in view. */
export function inView(): HTMLElement {
  const cards = [...document.querySelectorAll<HTMLElement>("[role=tabpanel]:not([hidden]) .card, .story-figure, .learn .card")];
  const seen = (card: Element) => {
    const { left, top, right, bottom } = card.getBoundingClientRect();
    const [wide, high] = [Math.min(right, innerWidth) - Math.max(left, 0), Math.min(bottom, innerHeight) - Math.max(top, 0)];
    return card.matches(".opening") || wide < 0 || high < 0 ? 0 : wide * high;
  };
  return cards.reduce((most, card) => (seen(card) > seen(most) ? card : most), cards[0] ?? document.body);
}

/** The button, and the dialog that it opens. */
export function sharing(shared: Shared): HTMLElement[] {
  const t = TEXTS[shared.language];
  const said = el("p", { role: "status", class: "share-said" });
  const local = location.protocol === "file:";
  const snippet = el("textarea", { readonly: true, rows: 4, id: "share-snippet", "aria-label": t.snippet, spellcheck: "false" });
  const button = (id: string, words: string, act: () => Promise<string>) =>
    el("button", { type: "button", id, onclick: () => void act().then((done) => (said.textContent = done)) }, words);
  const picture = (ratio = 2) => painted(inView(), shared.words(), shared.look(), ratio);
  const named = (ending: string) => `pellucid-${shared.title().replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40)}.${ending}`;
  const savePicture = async (words: (name: string) => string) => {
    save(await png(picture()), named("png"));
    return words(named("png"));
  };
  const copyPicture = async () => {
    try {
      // The picture is drawn at once: a browser takes it only as an answer to the press.
      await navigator.clipboard.write([new ClipboardItem({ "image/png": png(picture()) })]);
      return t.copied;
    } catch {
      return savePicture(t.savedInstead);
    }
  };
  const saveFilm = async () => {
    const { frames: count, pace, each } = shared.film!;
    const frames = count();
    if (frames === 0) return t.noFilm;
    const card = inView();
    const shots: HTMLCanvasElement[] = [];
    await each((frame) => {
      said.textContent = t.filming(frame + 1, frames);
      shots.push(painted(card, shared.words(), shared.look(), 1));
    });
    save(new Blob([gif(alike(shots, shared.look().ground), pace)], { type: "image/gif" }), named("gif"));
    return t.saved(named("gif"));
  };
  const copyText = (text: () => string) => async () => {
    try {
      await navigator.clipboard.writeText(text());
      return t.copied;
    } catch {
      snippet.value = text();
      snippet.select();
      return t.notCopied;
    }
  };
  const frame = () => {
    const page = location.href.replace(/#.*/, "");
    const own = local ? page.replace(/.*\//, "") : page;
    const src = `${own}#embed&${location.hash.replace(/^#/, "")}`;
    const quoted = (text: string) => text.replaceAll("&", "&amp;").replaceAll('"', "&quot;");
    return `<iframe src="${quoted(src)}" title="${quoted(shared.title())}" width="${WIDE}" height="${HIGH}" style="max-width: 100%; border: 0" loading="lazy"></iframe>`;
  };
  const part = (title: string, hint: string, ...inside: HTMLElement[]) =>
    el("div", { class: "share-part" }, el("h3", {}, title), hint ? el("p", { class: "hint" }, hint) : null, el("div", { class: "choices" }, ...inside));
  const dialog = el(
    "dialog",
    { class: "sharing", "aria-label": t.share },
    el("h2", {}, t.share),
    part(t.picture, "", button("copy-picture", t.copyPicture, copyPicture), button("save-picture", t.savePicture, () => savePicture(t.saved))),
    ...(shared.film ? [part(t.film, t.gifHint, button("save-gif", t.saveGif, saveFilm))] : []),
    part(t.link, "", button("copy-link", t.copyLink, copyText(() => location.href))),
    ...(shared.embeds === false ? [] : [part(t.embed, `${t.embedHint}${local ? ` ${t.local}` : ""}`, snippet, button("copy-embed", t.copyEmbed, copyText(frame)))]),
    said,
    el("form", { method: "dialog" }, el("button", {}, t.close)),
  );
  const open = () => {
    said.textContent = "";
    snippet.value = frame();
    dialog.showModal();
  };
  return [el("button", { type: "button", class: "quiet", id: "share", onclick: open }, t.share), dialog];
}

/** Pictures of a card that grew or shrank by a line meanwhile, all of the largest's size. */
function alike(shots: readonly HTMLCanvasElement[], ground: string): ImageData[] {
  const [width, height] = [Math.max(...shots.map(({ width }) => width)), Math.max(...shots.map(({ height }) => height))];
  const canvas = el("canvas", { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  return shots.map((shot) => {
    context.fillStyle = ground;
    context.fillRect(0, 0, width, height);
    context.drawImage(shot, 0, 0);
    return context.getImageData(0, 0, width, height);
  });
}

function png(canvas: HTMLCanvasElement): Promise<Blob> {
  return new Promise((done, failed) => canvas.toBlob((blob) => (blob ? done(blob) : failed(new Error("no picture"))), "image/png"));
}

function save(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  el("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), KEPT);
}

/** Whether the address asks for one picture alone, as in a frame of another page. */
export function embedded(hash = location.hash): boolean {
  return new URLSearchParams(hash.replace(/^#/, "")).has("embed");
}

/** Where such a frame leads. */
export function wholePage(language: Language): HTMLElement {
  const link = el("a", { class: "whole-page", target: "_blank", rel: "noopener" }, TEXTS[language].whole);
  const aim = () => (link.href = location.href.replace(/([#&])embed=?(&|$)/, "$1"));
  for (const kind of ["pointerover", "focus", "click"]) link.addEventListener(kind, aim);
  aim();
  return link;
}
