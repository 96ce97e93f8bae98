// Type and see: a form that asks the page's server for the record of another text. A page that was
// saved as a file has no element `live`, hence no form, and asks nobody.

import { el, labelled, textField } from "./dom.ts";
import { dataOf } from "./record.ts";
import type { PageRecord } from "./record.ts";
import type { State } from "./store.ts";
import { t } from "./text.ts";

interface Served {
  id: string;
  /** "translate", "chat", "pronounce", "continue", "fill" or "label". */
  kind: string;
  /** A text that it can read. */
  example?: string;
  /** Its own beam. */
  beam?: number;
}

interface Offer {
  models: Served[];
  record_url: string;
  opened?: { model: string; text: string };
  error?: string | null;
}

const WIDEST_BEAM = 8;
const HOTTEST = 2;

/** What was typed and chosen; it outlives the form, which is built anew with each record. */
interface Asked {
  model: string;
  text: string;
  beam: string;
  temperature: string;
  seed: number;
  error: string;
}

export class Live {
  private readonly offer: Offer;
  private readonly asked: Asked;
  private readonly load: (record: PageRecord) => void;
  /** The model of the record in view. */
  private shown: string;

  private constructor(offer: Offer, load: (record: PageRecord) => void) {
    this.offer = offer;
    this.load = load;
    const model = offer.opened?.model ?? offer.models[0]?.id ?? "";
    this.shown = model;
    this.asked = {
      model,
      text: offer.opened?.text ?? "",
      beam: String(offer.models.find(({ id }) => id === model)?.beam ?? ""),
      temperature: "",
      seed: 0,
      error: offer.error ?? "",
    };
  }

  /** The live page that this is, if it is one. */
  static here(load: (record: PageRecord) => void): Live | null {
    const offered = dataOf<Offer>("live");
    return offered && new Live(offered, load);
  }

  private get served(): Served | undefined {
    return this.offer.models.find(({ id }) => id === this.asked.model);
  }

  private get searches(): boolean {
    return !["fill", "label"].includes(this.served?.kind ?? "");
  }

  /** The form; `state` gives the choices of the page, if it shows a record. */
  form(state: () => State | null): HTMLElement {
    const { asked, offer } = this;
    const keep = (name: "text" | "beam" | "temperature") => (event: Event) => {
      asked[name] = (event.target as HTMLInputElement).value;
    };
    const text = textField("live-text", asked.text, { required: true, oninput: keep("text") });
    const number = (id: string, name: "beam" | "temperature", low: number, high: number) =>
      el("input", {
        id,
        type: "number",
        min: low,
        max: high,
        step: name === "beam" ? 1 : 0.1,
        value: asked[name],
        placeholder: name === "beam" ? "" : "0",
        oninput: keep(name),
      });
    const beam = number("live-beam", "beam", 1, WIDEST_BEAM);
    const temperature = number("live-temperature", "temperature", 0, HOTTEST);
    const model = el(
      "select",
      { id: "live-model" },
      ...offer.models.map(({ id }) => el("option", { value: id, selected: id === asked.model }, id)),
    );
    const hint = el("p", { class: "hint" });
    const search = [labelled(t.live.beam, beam), labelled(t.live.temperature, temperature)];
    const choose = () => {
      beam.max = String(Math.max(WIDEST_BEAM, this.served?.beam ?? 1));
      for (const one of search) one.hidden = !this.searches;
      hint.textContent = t.live.kinds[this.served?.kind ?? ""] ?? "";
    };
    model.addEventListener("change", () => {
      const before = this.served;
      asked.model = model.value;
      if (asked.text === (before?.example ?? "")) asked.text = text.value = this.served?.example ?? "";
      asked.beam = beam.value = String(this.served?.beam ?? "");
      choose();
    });
    choose();
    const button = el("button", { type: "submit", class: "primary" }, t.live.show);
    const said = el("p", { id: "live-said", role: "status" }, asked.error);
    said.classList.toggle("note", asked.error !== "");
    const form = el(
      "form",
      { class: "card live", "aria-label": t.live.name },
      el(
        "div",
        { class: "live-line" },
        el("label", { for: "live-text" }, t.live.text),
        text,
        button,
      ),
      el(
        "div",
        { class: "choices" },
        ...(offer.models.length > 1 ? [labelled(t.live.model, model)] : []),
        ...search,
      ),
      hint,
      said,
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (button.disabled) return;
      button.disabled = true;
      form.setAttribute("aria-busy", "true");
      said.classList.remove("note");
      said.textContent = t.live.wait;
      void this.ask(state()).then((failed) => {
        button.disabled = false;
        form.removeAttribute("aria-busy");
        asked.error = failed;
        said.classList.toggle("note", failed !== "");
        said.textContent = failed;
      });
    });
    return form;
  }

  /** Ask for the record and load it; return what went wrong, or "". */
  private async ask(state: State | null): Promise<string> {
    const { asked, offer } = this;
    const temperature = this.searches ? Number(asked.temperature) : 0;
    // The head in view stays where the model is the same.
    const place =
      state && this.shown === asked.model
        ? { kind: state.kind, layer: state.layer + 1, head: state.head + 1 }
        : {};
    const body = {
      model: asked.model,
      text: asked.text,
      // The model's own needs no permission, however wide it is.
      ...(this.searches && !["", String(this.served?.beam)].includes(asked.beam) ? { beam: Number(asked.beam) } : {}),
      ...(temperature > 0 ? { temperature, seed: asked.seed++ } : {}),
      ...place,
    };
    try {
      const answer = await fetch(offer.record_url, {
        method: "POST",
        headers: { "Content-Type": "application/json", "Accept-Language": document.documentElement.lang },
        body: JSON.stringify(body),
      });
      const made = (await answer.json()) as PageRecord & { error?: { message?: string } };
      if (!answer.ok) return made.error?.message ?? t.live.failed(answer.status);
      this.shown = body.model;
      asked.error = "";
      this.load(made);
      document.getElementById("live-text")?.focus();
      return "";
    } catch {
      return t.live.unreachable;
    }
  }
}
