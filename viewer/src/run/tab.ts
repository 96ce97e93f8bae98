// The tab in which the model runs: type, switch parts off, see what the answer needs.

import { address } from "../address.ts";
import { css, readableOn, weightIndex } from "../colours.ts";
import type { Colours } from "../colours.ts";
import { clamp, el, percent, token } from "../dom.ts";
import type { Model } from "../model.ts";
import type { Label } from "../record.ts";
import type { Language } from "../text.ts";
import type { Answer } from "./forward.ts";
import { ledger, lens } from "./ledger.ts";
import type { StackName } from "./model.ts";
import { TEXTS } from "./text.ts";
import { Trial, sortOf, sum } from "./trial.ts";
import type { Site, Sort } from "./trial.ts";

const SHOWN = 12;

/** Names of parts, in the language of the page. */
class Names {
  readonly t: (typeof TEXTS)["en"];
  readonly trial: Trial;

  constructor(trial: Trial, language: Language) {
    this.t = TEXTS[language];
    this.trial = trial;
  }

  site({ block }: Site): string {
    const { t } = this;
    return block.kind === "network" ? t.network : block.memory ? t.cross : t.self;
  }

  part(part: string): string {
    const { t, trial } = this;
    const [where, first, head, query, key] = part.split(".");
    if (where === "source") {
      return t.token(Number(first) + 1, trial.labels("source")[Number(first)]?.[0] ?? "");
    }
    const site = trial.sites.find(({ name }) => name === `${where}.${first}`)!;
    const words = [t.stacks[where as StackName], t.layer(site.block.layer + 1), this.site(site)];
    if (head !== undefined) words.push(t.head(Number(head) + 1));
    if (query !== undefined) {
      const [rows, columns] = sides(site);
      const labels = (side: "source" | "target", i: string) => trial.labels(side)[Number(i)]?.[0] ?? "";
      words.push(t.edge(labels(rows, query), labels(columns, key!)));
    }
    return words.join(" · ");
  }
}

function sides({ stack, block }: Site): ["source" | "target", "source" | "target"] {
  const rows = stack === "encoder" ? "source" : "target";
  return [rows, block.kind === "attention" && block.memory ? "source" : rows];
}

function nats(x: number): string {
  return x.toFixed(2).replace("-", "−").replace(/^−(0\.00)$/, "$1");
}

function change(x: number): string {
  return x >= 0.005 ? `+${nats(x)}` : nats(x);
}


/** A part of the tab, and what brings it up to date. */
type Card = [card: HTMLElement, update: () => void];

/** The panel of the tab; the colours are read when something is drawn, for they follow the theme. */
export function trialPanel(trial: Trial, model: Model): HTMLElement {
  const names = new Names(trial, model.state.language);
  const colours = () => model.colours;
  const first = typing(trial, names);
  const left = [board(trial, names), edges(trial, names, colours)];
  const right = ranking(trial, names);
  const last = [decided(trial, names), outcome(trial, names)];
  trial.listen(() => {
    for (const [card, update] of [first, ...left, right, ...last]) {
      card.hidden = !trial.whole && card !== first[0];
      if (!card.hidden) update();
    }
    if (model.state.tab === "run") address(model, trial);
  });
  const column = el("div", { class: "try-column" }, ...left.map(([card]) => card));
  return el("div", { class: "try" }, first[0], column, right[0], ...last.map(([card]) => card));
}

/** The text, and the answers with everything and without what is off. */
function typing(trial: Trial, names: Names): Card {
  const { t } = names;
  const input = el("input", {
    id: "try-text",
    type: "text",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    value: trial.text,
    oninput: () => trial.read(input.value),
  });
  const answers = el("div", { class: "try-answers" });
  const said = el("p", { class: "hint", role: "status" });
  const update = () => {
    const { whole, now, ids } = trial;
    const unknown = trial.labels("source").filter(([, kind]) => kind === "unknown");
    said.classList.toggle("note", !whole || unknown.length > 0);
    if (!whole || !now) {
      said.textContent = ids.length > 0 ? t.tooLong(ids.length, trial.longest) : t.empty;
      answers.replaceChildren();
      return;
    }
    const { answer } = whole;
    said.textContent =
      unknown.length > 0
        ? t.unknown(unknown.map(([text]) => text).join(" "))
        : t.took(answer.losses.length, trial.ms.toFixed(0));
    const rows = [row(trial, names, t.whole, answer, true)];
    if (trial.off.size > 0) {
      rows.push(row(trial, names, t.without(without(trial, names)), now.answer, false));
    }
    const focused = answers.contains(document.activeElement);
    answers.replaceChildren(...rows);
    if (focused) answers.querySelector<HTMLElement>("[tabindex='0']")?.focus();
  };
  const line = el("div", { class: "live-line" }, el("label", { for: "try-text" }, t.text), input);
  return [el("section", { class: "card try-typing" }, line, answers, said, el("p", { class: "hint" }, t.hint)), update];
}

/** In view wherever parts are switched: what became of the answer. */
function outcome(trial: Trial, names: Names): Card {
  const { t } = names;
  const said = el("p", { role: "status" });
  const reset = el("button", { type: "button", onclick: () => trial.reset() }, t.everything);
  const bar = el("div", { class: "try-outcome" }, said, reset);
  const update = () => {
    bar.classList.toggle("none", trial.off.size === 0);
    const { whole, now } = trial;
    if (trial.off.size === 0 || !whole || !now) {
      said.textContent = "";
      return;
    }
    const [before, after] = [sum(whole.answer.losses), sum(now.ofFirst)];
    const written = trial.target.decode(now.answer.ids);
    const same = String(now.answer.ids) === String(whole.answer.ids);
    said.replaceChildren(
      el("span", { class: "hint" }, t.without(without(trial, names))),
      " ",
      el("strong", {}, written),
      " ",
      el("span", {}, same ? t.same : ""),
      " ",
      el("span", { class: "hint" }, `${t.firstAnswer(nats(before), nats(after))} (${change(after - before)})`),
    );
  };
  return [bar, update];
}

function without(trial: Trial, names: Names): string {
  const [part] = trial.off;
  return trial.off.size === 1 ? names.part(part!) : names.t.parts(trial.off.size);
}

function row(trial: Trial, { t }: Names, name: string, answer: Answer, first: boolean): HTMLElement {
  const { end } = trial.runner.record;
  const ids = answer.ended ? [...answer.ids, end] : answer.ids;
  const before = trial.whole!.answer.ids;
  const chips = ids.map((id, i) => {
    const label = trial.target.label(id);
    const inside = [token(label), " ", el("span", { class: "p" }, nats(answer.losses[i]!))];
    const about = t.tokenLoss(label[0], nats(answer.losses[i]!));
    const p = `--p:${(100 * Math.exp(-answer.losses[i]!)).toFixed(1)}%`;
    if (!first) {
      const other = id !== (before[i] ?? end) ? " other" : "";
      return el("span", { class: `said${other}`, style: p, title: about }, ...inside);
    }
    return el(
      "button",
      {
        type: "button",
        class: "said",
        style: p,
        title: about,
        "aria-pressed": String(i === trial.token),
        tabindex: i === trial.token ? 0 : -1,
        onclick: () => trial.choose({ token: i }),
      },
      ...inside,
    );
  });
  const list = el("div", first ? { class: "answer", role: "group", "aria-label": t.answerTokens } : { class: "answer" }, ...chips);
  if (first) {
    list.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      trial.choose({ token: clamp(trial.token + step, chips.length) });
    });
  }
  return el(
    "div",
    { class: "try-row" },
    el("h3", {}, name),
    el("p", { class: "try-text", lang: "" }, trial.target.decode(answer.ids)),
    list,
    el("p", { class: "hint" }, t.loss(nats(sum(answer.losses))) + (answer.ended ? "" : ` · ${t.stopped}`)),
  );
}

/** A switch for every head, network, layer and token, tinted by what is lost without it. */
function board(trial: Trial, names: Names): Card {
  const { t } = names;
  const switches = new Map<HTMLButtonElement, string[]>();
  const button = (text: string, about: string, parts: string[], kind = "part-switch") => {
    const made = el(
      "button",
      { type: "button", role: "switch", class: kind, "aria-label": about, title: about, onclick: () => trial.toggle(parts) },
      text,
    );
    switches.set(made, parts);
    return made;
  };
  const stack = (name: StackName) => {
    const sites = trial.sites.filter((site) => site.stack === name);
    const layers = [...new Set(sites.map(({ block }) => block.layer))];
    return el(
      "div",
      { class: "try-stack", role: "group", "aria-label": t.stacks[name] },
      el("h3", {}, t.stacks[name]),
      ...layers.map((layer) => {
        const own = sites.filter(({ block }) => block.layer === layer);
        const title = `${t.stacks[name]} · ${t.layer(layer + 1)}`;
        return el(
          "div",
          { class: "try-layer" },
          button(t.layer(layer + 1), title, own.map((site) => site.name), "layer-switch"),
          ...own.map((site) => {
            const heads = site.block.kind === "network" ? 0 : site.block.heads;
            return el(
              "span",
              { class: "try-site" },
              button(names.site(site), names.part(site.name), [site.name], "site-switch"),
              ...Array.from({ length: heads }, (_, h) =>
                button(String(h + 1), names.part(`${site.name}.${h}`), [`${site.name}.${h}`]),
              ),
            );
          }),
        );
      }),
    );
  };
  const tokens = el("span", { class: "try-site" });
  let ids: number[] | null = null;
  const update = () => {
    if (ids !== trial.ids) {
      ids = trial.ids;
      for (const old of tokens.children) switches.delete(old as HTMLButtonElement);
      tokens.replaceChildren(
        ...trial.labels("source").map(([text], i) => button(text, names.part(`source.${i}`), [`source.${i}`])),
      );
    }
    const effects = new Map(trial.effects.map(({ part, grows }) => [part, grows]));
    const most = { heads: 1e-9, sublayers: 1e-9, tokens: 1e-9 };
    for (const [part, grows] of effects) most[sortOf(part)] = Math.max(most[sortOf(part)], grows);
    for (const [made, parts] of switches) {
      made.setAttribute("aria-checked", String(!parts.every((part) => trial.off.has(part))));
      const grows = parts.length === 1 ? effects.get(parts[0]!) : undefined;
      made.style.setProperty("--hurt", String(Math.max(0, grows ?? 0) / most[sortOf(parts[0]!)]));
      made.title = made.getAttribute("aria-label")! + (grows === undefined ? "" : `: ${change(grows)}`);
    }
  };
  const card = el(
    "section",
    { class: "card try-board" },
    el("h2", {}, t.board),
    el("p", { class: "hint" }, t.boardHint),
    el("div", { class: "try-layer", role: "group", "aria-label": t.tokens }, el("h3", {}, t.tokens), tokens),
    stack("encoder"),
    stack("decoder"),
  );
  return [card, update];
}

/** What each part matters for the answer, the most first. */
function ranking(trial: Trial, names: Names): Card {
  const { t } = names;
  let all = false;
  let sort: Sort | "all" = "all";
  const sorts = (["all", "heads", "sublayers", "tokens"] as const).map((name) => {
    const choose = () => {
      sort = name;
      update();
    };
    return [name, el("button", { type: "button", onclick: choose }, t.sorts[name])] as const;
  });
  const list = el("ol", { class: "try-ranking" });
  const waiting = el("p", { class: "hint" }, t.measuring);
  const more = el("button", {
    type: "button",
    class: "quiet",
    onclick: () => {
      all = !all;
      update();
    },
  });
  const update = () => {
    const { measured, off } = trial;
    const effects = trial.effects.filter(({ part }) => sort === "all" || sortOf(part) === sort);
    for (const [name, button] of sorts) button.setAttribute("aria-pressed", String(name === sort));
    waiting.hidden = measured;
    list.hidden = !measured;
    more.hidden = !measured || effects.length <= SHOWN;
    if (!measured) return;
    const most = Math.max(1e-9, ...effects.map(({ grows }) => Math.abs(grows)));
    more.textContent = all ? t.fewer : t.more(effects.length);
    const focused = [...list.querySelectorAll("button")].findIndex((one) => one === document.activeElement);
    list.replaceChildren(
      ...effects.slice(0, all ? effects.length : SHOWN).map(({ part, grows, other }) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              "aria-pressed": String(off.size === 1 && off.has(part)),
              onclick: () => {
                const look = part.split(".").length === 3 ? { look: part } : {};
                Object.assign(trial, look);
                trial.toggle([part], true);
              },
            },
            el("span", { class: "name" }, names.part(part)),
            el(
              "span",
              { class: "track" },
              el("span", {
                class: grows < 0 ? "bar less" : "bar",
                style: `width:${((100 * Math.abs(grows)) / most).toFixed(1)}%`,
              }),
            ),
            el("span", { class: "p" }, change(grows)),
            other === null ? null : el("span", { class: "becomes" }, t.becomes(trial.target.decode(other.ids))),
          ),
        ),
      ),
    );
    list.querySelectorAll("button")[focused]?.focus();
  };
  return [
    el(
      "section",
      { class: "card" },
      el("h2", {}, t.ranking),
      el("p", { class: "hint" }, t.rankingHint),
      el("div", { class: "segmented", role: "group", "aria-label": t.ranking }, ...sorts.map(([, button]) => button)),
      waiting,
      list,
      more,
    ),
    update,
  ];
}

/** The weights of one head; a cell cuts its edge. */
function edges(trial: Trial, names: Names, colours: () => Colours): Card {
  const { t } = names;
  const heads = trial.sites.flatMap((site) =>
    site.block.kind === "network" ? [] : Array.from({ length: site.block.heads }, (_, h) => `${site.name}.${h}`),
  );
  const choice = el("select", { id: "try-head" }, ...heads.map((head) => el("option", { value: head }, names.part(head))));
  choice.addEventListener("change", () => trial.choose({ look: choice.value }));
  const grid = el("table", { class: "try-edges", role: "grid" });
  let at: [number, number] = [0, 0];
  const cellAt = (row: number, column: number) =>
    grid.querySelector<HTMLElement>(`[data-row="${row}"][data-column="${column}"]`);
  grid.addEventListener("keydown", (event) => {
    const step = { ArrowDown: [1, 0], ArrowUp: [-1, 0], ArrowRight: [0, 1], ArrowLeft: [0, -1] }[event.key];
    const cell = event.target as HTMLElement;
    if (event.key === "Enter" || event.key === " ") cell.click();
    else if (step) {
      const next = cellAt(Number(cell.dataset["row"]) + step[0]!, Number(cell.dataset["column"]) + step[1]!);
      cell.tabIndex = next ? -1 : 0;
      if (next) next.tabIndex = 0;
      next?.focus();
    } else return;
    event.preventDefault();
  });
  const update = () => {
    choice.value = trial.look;
    const [stack, block, head] = trial.look.split(".");
    const site = trial.sites.find(({ name }) => name === `${stack}.${block}`)!;
    const { run, memory } = trial.now!;
    const looks = (stack === "encoder" ? memory.run : run).looks[Number(block)];
    const [rows, columns] = sides(site).map((side) => trial.labels(side)) as [Label[], Label[]];
    const ended = stack === "decoder" && trial.whole!.answer.ended;
    const queries = ended ? rows.slice(0, -1) : rows;
    const keys = columns === rows || sides(site)[1] === "target" ? columns.slice(0, queries.length) : columns;
    const { weight } = colours();
    const focused = grid.contains(document.activeElement);
    at = [Math.min(at[0], queries.length - 1), Math.min(at[1], keys.length - 1)];
    const causal = site.block.kind === "attention" && site.block.causal;
    const cell = (l: number, s: number) => {
      const w = looks?.weights[(Number(head) * queries.length + l) * keys.length + s] ?? 0;
      const edge = `${trial.look}.${l}.${s}`;
      const on = !trial.off.has(edge);
      if (causal && s > l) return el("td", { class: "ahead", role: "gridcell", "data-row": l, "data-column": s, tabindex: -1 });
      const colour = weight[weightIndex(w)]!;
      const about = t.cell(queries[l]![0], keys[s]![0], `${Math.round(100 * w)}`, on);
      return el(
        "td",
        {
          role: "gridcell",
          class: on ? "" : "cut",
          tabindex: l === at[0] && s === at[1] ? 0 : -1,
          "data-row": l,
          "data-column": s,
          "aria-label": about,
          title: about,
          style: `background:${css(colour)};color:${readableOn(colour)}`,
          onclick: () => {
            at = [l, s];
            trial.toggle([edge]);
          },
        },
        on ? (w >= 0.095 ? `${Math.round(100 * w)}` : "") : "✕",
      );
    };
    grid.replaceChildren(
      el(
        "thead",
        {},
        el("tr", {}, el("td"), ...keys.map((key) => el("th", { scope: "col" }, token(key)))),
      ),
      el(
        "tbody",
        {},
        ...queries.map((query, l) =>
          el("tr", {}, el("th", { scope: "row" }, token(query)), ...keys.map((_, s) => cell(l, s))),
        ),
      ),
    );
    grid.setAttribute("aria-label", names.part(trial.look));
    if (focused) cellAt(...at)?.focus();
  };
  const card = el(
    "section",
    { class: "card" },
    el(
      "header",
      {},
      el("h2", {}, t.edges),
      el("span", { class: "together choices" }, el("label", { for: "try-head" }, t.ofHead), choice),
    ),
    el("p", { class: "hint" }, t.edgesHint),
    el("div", { class: "try-scroll", role: "region", "aria-label": t.edges, tabindex: 0 }, grid),
  );
  return [card, update];
}

/** What every part adds to the chosen token's logit, and what the model would say after it. */
function decided(trial: Trial, names: Names): Card {
  const { t } = names;
  const title = el("h2");
  const body = el("tbody");
  const update = () => {
    const { runner, target } = trial;
    const { answer } = trial.whole!;
    const id = answer.ids[trial.token] ?? runner.record.end;
    const { run } = trial.now!;
    title.textContent = t.decided(target.label(id)[0]);
    const shares = ledger(runner, run, trial.token, id);
    const says = lens(runner, run, trial.token);
    const decoder = trial.sites.filter(({ stack }) => stack === "decoder");
    const rows = ["", ...decoder.map(({ name }) => name)].map((part, i) => {
      const own = shares.filter((share) => share.part === part || (part !== "" && share.part.startsWith(`${part}.`)));
      const heads = own.filter((share) => share.part !== part);
      return { name: part === "" ? t.embedding : names.part(part).split(" · ").slice(1).join(" · "), own, heads, says: says[i] };
    });
    const biases = shares.filter(({ part }) => part === "bias");
    rows.push({ name: t.biases, own: biases, heads: [], says: undefined });
    const totals = rows.map(({ own }) => sum(own.map(({ logit }) => logit)));
    const most = Math.max(1e-9, ...totals.map(Math.abs));
    body.replaceChildren(
      ...rows.map(({ name, heads, says }, i) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, name),
          el("td", {}, signedBar(totals[i]! / most), el("span", { class: "p" }, change(totals[i]!))),
          el("td", { class: "heads" }, ...heads.map(({ logit }) => el("span", { class: logit < 0 ? "less" : "more" }, change(logit)))),
          el(
            "td",
            { class: "says" },
            says === undefined ? null : token(target.label(says.says)),
            says === undefined ? null : el("span", { class: "p" }, percent(says.p)),
          ),
        ),
      ),
      el("tr", { class: "total" }, el("th", { scope: "row" }, t.total), el("td", {}, signedBar(0), el("span", { class: "p" }, nats(sum(totals)))), el("td"), el("td")),
    );
  };
  const card = el(
    "section",
    { class: "card try-decided" },
    title,
    el("p", { class: "hint" }, t.decidedHint),
    el(
      "div",
      { class: "try-scroll", role: "region", "aria-label": t.columns[1]!, tabindex: 0 },
      el(
        "table",
        { class: "try-ledger" },
        el("thead", {}, el("tr", {}, ...t.columns.map((name) => el("th", { scope: "col" }, name)))),
        body,
      ),
    ),
  );
  return [card, update];
}

/** A bar to the right of the middle, or to its left below zero; `share` is −1 … 1. */
function signedBar(share: number): HTMLElement {
  const width = `${(50 * Math.abs(share)).toFixed(1)}%`;
  const from = share < 0 ? `right:50%` : `left:50%`;
  return el("span", { class: "signed-track" }, el("span", { class: share < 0 ? "bar less" : "bar", style: `${from};width:${width}` }));
}
