// The tab in which the model runs: type, switch parts off, see what the answer needs.

import { el, moving, percent, scrolling, segmented, textField, token } from "../dom.ts";
import type { Colours } from "../colours.ts";
import type { Language } from "../text.ts";
import { editing } from "./editing.ts";
import type { Rows } from "../record.ts";
import { loss } from "./forward.ts";
import type { Answer } from "./forward.ts";
import { attribution } from "./attribution.ts";
import { gradientsOf } from "./edit.ts";
import { ledger, lens } from "./ledger.ts";
import { maps } from "./maps.ts";
import { lastOf, stacksOf } from "./model.ts";
import type { StackName } from "./model.ts";
import { Names, change, nats } from "./names.ts";
import type { Card } from "./names.ts";
import { teaching } from "./teaching.ts";
import { sortOf, sum } from "./trial.ts";
import type { Mode, Sort, Trial } from "./trial.ts";

const SHOWN = 12;
/** Tokens offered instead of the chosen one. */
const SHOWN_INSTEAD = 5;

/** What the panel asks of its page. Colours are read when something is drawn, for they follow the theme. */
export interface Host {
  language: Language;
  colours: () => Colours;
  /** Hears of every change. */
  changed: () => void;
  /** Hears when all that is known has been drawn. */
  drawn?: () => void;
  /** What is below the text instead of the words on the model's 8-bit numbers. */
  hint?: string;
  /** Whether the address of the page carries what is taught. */
  links?: boolean;
}

export function trialPanel(trial: Trial, { language, colours, changed, drawn, hint, links = false }: Host): HTMLElement {
  const names = new Names(trial, language);
  const first = typing(trial, names, hint ?? names.t.hint);
  const left = [board(trial, names), maps(trial, names, colours)];
  const right = ranking(trial, names);
  const last = [teaching(trial, names, links), editing(trial, names, changed), decided(trial, names), outcome(trial, names)];
  const others = [...left, right, ...last];
  let [turn, read] = [0, -1];
  const update = async () => {
    const now = ++turn;
    // After a key the answer is first; the other parts follow one by one, unless another key comes.
    const waits = trial.readings !== read && !trial.measured;
    read = trial.readings;
    for (const [card] of others) card.hidden = !trial.whole;
    first[1]();
    changed();
    for (const [card, update] of others) {
      if (waits) await new Promise((done) => setTimeout(done));
      if (now !== turn) return;
      if (!card.hidden) update();
    }
    drawn?.();
  };
  trial.listen(() => void update(), () => [left[0]!, right].forEach(([, update]) => update()));
  const column = el("div", { class: "try-column" }, ...left.map(([card]) => card));
  return el("div", { class: "try" }, first[0], column, right[0], ...last.map(([card]) => card));
}

/** The text, and the answers with everything and without what is off. */
function typing(trial: Trial, names: Names, hint: string): Card {
  const { t } = names;
  const input = textField("try-text", trial.text, {
    oninput: () => {
      trial.expected = expected.value = "";
      trial.read(input.value);
    },
  });
  const expected = textField("try-expected", trial.expected, {
    placeholder: t.itsOwn,
    list: "try-labels",
    onchange: () => trial.expect(expected.value.trim()),
  });
  const { labels, suppressed } = trial.runner.record;
  const all = labels ? trial.runner.record.tokenizers.target.vocabulary.filter((_, id) => !suppressed!.includes(id)) : [];
  const choices = el("datalist", { id: "try-labels" }, ...all.map((value) => el("option", { value })));
  const answers = el("div", { class: "try-answers" });
  const said = el("p", { class: "hint", role: "status" });
  const pieces = el("div", { class: "try-pieces", role: "group", "aria-label": t.pieces });
  const update = () => {
    const { whole, now, ids } = trial;
    const several = trial.passage.pieces.length > 1;
    pieces.hidden = !several;
    const chosen = pieces.contains(document.activeElement);
    pieces.replaceChildren(
      ...(several ? trial.passage.pieces : []).map((piece, i) => {
        const pressed = { "aria-pressed": String(i === trial.at), onclick: () => trial.turnTo(i) };
        return el("button", { type: "button", lang: "", ...pressed }, piece);
      }),
      el("p", { class: "hint" }, `${t.pieces} ${t.together} `, el("strong", { lang: "" }, trial.together ?? "")),
    );
    if (chosen) pieces.querySelector<HTMLElement>("[aria-pressed='true']")?.focus();
    const unknown = trial.labels("source").filter(([, kind]) => kind === "unknown");
    said.classList.toggle("note", !whole || unknown.length > 0 || trial.unfit !== "");
    if (!whole || !now) {
      said.textContent = ids.length > 0 ? t.tooLong(ids.length, trial.longest) : t.empty;
      answers.replaceChildren();
      return;
    }
    const { answer } = whole;
    said.textContent = trial.unfit !== "" ? t.unfit(trial.unfit)
      : unknown.length > 0
        ? t.unknown(unknown.map(([text]) => text).join(" "))
        : t.took(answer.losses.length, trial.ms.toFixed(0));
    const given = trial.expected !== "";
    const rows = [row(trial, names, given ? t.expectedAnswer : t.whole, answer, true)];
    if (given) rows.unshift(row(trial, names, t.whole, trial.own!, false));
    if (trial.off.size > 0) {
      rows.push(row(trial, names, t.without(without(trial, names)), now.answer, false));
    }
    const focused = answers.contains(document.activeElement);
    answers.replaceChildren(...rows);
    if (focused) answers.querySelector<HTMLElement>("[tabindex='0']")?.focus();
  };
  const line = el(
    "div",
    { class: "live-line" },
    el("label", { for: "try-text" }, t.text),
    input,
    el("label", { for: "try-expected" }, t.expected),
    expected,
    choices,
  );
  return [el("section", { class: "card try-typing" }, line, pieces, answers, said, el("p", { class: "hint" }, hint)), update];
}

/** In view wherever parts are switched: what became of the answer. */
function outcome(trial: Trial, names: Names): Card {
  const { t } = names;
  const said = el("p", { role: "status" });
  const reset = el("button", { type: "button", onclick: () => trial.reset() }, t.everything);
  const bar = el("div", { class: "try-outcome none" }, said, reset);
  const update = () => {
    bar.classList.toggle("none", trial.off.size === 0);
    const { whole, now } = trial;
    if (trial.off.size === 0 || !whole || !now) {
      said.textContent = "";
      return;
    }
    const [before, after] = [sum(whole.answer.losses), sum(now.ofFirst)];
    const written = trial.target.decode(now.answer.ids);
    const same = String(now.answer.ids) === String(trial.own!.ids);
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
  const before = trial.own!.ids;
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
        onclick: () => trial.choose({ token: i, rather: null }),
      },
      ...inside,
    );
  });
  const list = el("div", first ? { class: "answer", role: "group", "aria-label": t.answerTokens } : { class: "answer" }, ...chips);
  if (first) moving(list, () => [trial.token, chips.length], (token) => trial.choose({ token, rather: null }));
  return el(
    "div",
    { class: "try-row" },
    el("h2", {}, name),
    el("p", { class: "try-text", lang: "" }, trial.target.decode(answer.ids) || t.writesNothing),
    list,
    el("p", { class: "hint" }, t.loss(nats(sum(answer.losses))) + (answer.ended || !trial.runner.record.stacks.decoder ? "" : ` · ${t.stopped}`)),
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
  const modes = segmented(t.replaced, Object.entries(t.modes) as [Mode, string][], (mode) => trial.replace(mode));
  const from = el("input", { id: "try-from", type: "text", "aria-label": t.otherText, value: trial.from, spellcheck: "false" });
  from.addEventListener("input", () => trial.replace("text", from.value));
  const tokens = el("span", { class: "try-site" });
  let ids: number[] | null = null;
  const update = () => {
    if (ids !== trial.ids) {
      ids = trial.ids;
      for (const old of tokens.children) switches.delete(old as HTMLButtonElement);
      tokens.replaceChildren(
        ...trial.labels("source").map(([text], i) => button(text, names.part(`source.${i}`), [`source.${i}`])),
      );
      tokens.parentElement!.hidden = ids.length === 0;
    }
    modes.press(trial.mode);
    from.hidden = trial.mode !== "text";
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
    el("div", { class: "choices" }, el("span", { class: "hint" }, t.replaced), modes.root, from),
    el("div", { class: "try-layer", role: "group", "aria-label": t.tokens }, el("h3", {}, t.tokens), tokens),
    ...stacksOf(trial.runner.record).map(([name]) => stack(name)),
  );
  return [card, update];
}

/** What each part matters for the answer, the most first. */
function ranking(trial: Trial, names: Names): Card {
  const { t } = names;
  let all = false;
  let sort: Sort | "all" = "all";
  const sorts = segmented(t.ranking, Object.entries(t.sorts), (name) => {
    sort = name as Sort;
    update();
  });
  const list = el("ol", { class: "try-ranking" });
  const hint = el("p", { class: "hint" });
  const waiting = el("p", { class: "hint" });
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
    sorts.press(sort);
    const { rather, token, whole } = trial;
    const [name, other] = [whole!.answer.ids[token] ?? trial.runner.record.end, rather ?? 0].map((id) => trial.target.label(id)[0]) as [string, string];
    hint.textContent = rather === null ? t.rankingHint : t.rankingRather(name, other);
    waiting.hidden = measured;
    waiting.textContent = t.measuring(trial.effects.length, trial.parts.length);
    more.hidden = effects.length <= SHOWN;
    const most = Math.max(1e-9, ...effects.map(({ grows }) => Math.abs(grows)));
    more.textContent = all ? t.fewer : t.more(effects.length);
    const focused = list.contains(document.activeElement) ? document.activeElement?.id : undefined;
    list.replaceChildren(
      ...effects.slice(0, all ? effects.length : SHOWN).map(({ part, grows, other }) =>
        el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              id: `effect-${part}`,
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
    if (focused) document.getElementById(focused)?.focus();
  };
  return [
    el(
      "section",
      { class: "card" },
      el("h2", {}, t.ranking),
      hint,
      sorts.root,
      waiting,
      list,
      more,
    ),
    update,
  ];
}

/** What every part adds to the chosen token's logit, and what the model would say after it. */
function decided(trial: Trial, names: Names): Card {
  const { t } = names;
  const title = el("h2");
  const others = el("div", { class: "choices", role: "group", "aria-label": t.rather });
  const body = el("tbody");
  const tokens = el("div", { class: "try-attribution" });
  const update = () => {
    const { runner, target } = trial;
    const { answer } = trial.whole!;
    const id = answer.ids[trial.token] ?? runner.record.end;
    const { run } = trial.now!;
    const { rather } = trial;
    const row = run.places[trial.token]!;
    const [name, other] = [id, rather].map((token) => (token === null ? "" : target.label(token)[0])) as [string, string];
    title.textContent = rather === null ? t.decided(name) : t.decidedRather(name, other);
    others.replaceChildren(
      el("span", { class: "hint" }, t.rather),
      ...likeliest(runner.logits(run.rows), row, SHOWN_INSTEAD, id).map(([token, p]) =>
        el(
          "button",
          {
            type: "button",
            "aria-pressed": String(token === rather),
            onclick: () => trial.choose({ rather: token === rather ? null : token }),
          },
          target.label(token)[0],
          " ",
          el("span", { class: "p" }, percent(p)),
        ),
      ),
    );
    // Every part's share of the logit; of two tokens the difference, which adds up to that of the logits.
    const against = rather === null ? [] : ledger(runner, run, row, rather);
    const shares = ledger(runner, run, row, id).map(({ part, logit }) => ({
      part,
      logit: logit - (against.find((one) => one.part === part)?.logit ?? 0),
    }));
    const says = lens(runner, run, row);
    const last = trial.sites.filter(({ stack }) => stack === lastOf(runner.record)[0]);
    const rows = ["", ...last.map(({ name }) => name)].map((part, i) => {
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
          el("td", { class: "heads" }, ...heads.map(({ logit }, h) => el("span", { class: logit < 0 ? "less" : "", title: t.head(h + 1) }, el("sub", {}, String(h + 1)), change(logit)))),
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
    tokens.replaceChildren(...attributed(trial, names));
  };
  const card = el(
    "section",
    { class: "card try-decided" },
    title,
    el("p", { class: "hint" }, t.decidedHint),
    others,
    scrolling(
      t.columns[1]!,
      el(
        "table",
        { class: "try-ledger" },
        el("thead", {}, el("tr", {}, ...t.columns.map((name) => el("th", { scope: "col" }, name)))),
        body,
      ),
    ),
    el("h3", {}, t.attribution),
    el("p", { class: "hint" }, t.attributionHint),
    tokens,
  );
  return [card, update];
}

/** The tokens of both sides, each tinted by its share of the logit or of the difference. */
function attributed(trial: Trial, { t }: Names): HTMLElement[] {
  const fed = { ...trial.now!, answer: trial.whole!.answer, off: trial.off, counted: () => false, between: trial.decides };
  const found = attribution(trial.runner, fed, gradientsOf(trial.runner, fed));
  const most = Math.max(1e-9, ...Object.values(found).flatMap((shares) => shares.map(Math.abs)));
  return Object.entries(found).map(([stack, shares]) => {
    const labels = trial.labels(stack === "encoder" ? "source" : "target");
    const chips = shares.map((share, i) =>
      el(
        "span",
        { class: share < 0 ? "share less" : "share", style: `--share:${((40 * Math.abs(share)) / most).toFixed(1)}%` },
        token(labels[i]!),
        " ",
        el("span", { class: "p" }, change(share)),
      ),
    );
    return el("p", { class: "answer" }, el("span", { class: "hint" }, t.stacks[stack as StackName]), ...chips);
  });
}

/** The most likely tokens of one row but for `id`, each with its probability. */
export function likeliest({ values, width }: Rows, row: number, count: number, id: number): [token: number, p: number][] {
  const logits = values.subarray(row * width, (row + 1) * width);
  return Array.from(logits.keys())
    .filter((token) => token !== id && logits[token]! > -Infinity)
    .sort((a, b) => logits[b]! - logits[a]!)
    .slice(0, count)
    .map((token) => [token, Math.exp(-loss(logits, token))]);
}

/** A bar to the right of the middle, or to its left below zero; `share` is −1 … 1. */
function signedBar(share: number): HTMLElement {
  const width = `${(50 * Math.abs(share)).toFixed(1)}%`;
  const from = share < 0 ? `right:50%` : `left:50%`;
  return el("span", { class: "signed-track" }, el("span", { class: share < 0 ? "bar less" : "bar", style: `${from};width:${width}` }));
}
