// Names of the model's parts and numbers, as the cards of the tab write them.

import type { Language } from "../text.ts";
import type { Between } from "./backward.ts";
import type { StackName } from "./model.ts";
import { TEXTS } from "./text.ts";
import type { Site, Trial } from "./trial.ts";

/** Names of parts, in the language of the page. */
export class Names {
  readonly t: (typeof TEXTS)["en"];

  constructor(readonly trial: Trial, readonly language: Language) {
    this.t = TEXTS[language];
  }

  /** The two tokens whose logits are compared. */
  pair({ token, other }: Between): [string, string] {
    return [token, other!].map((id) => this.trial.target.label(id)[0]) as [string, string];
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

export function sides({ stack, block }: Site): ["source" | "target", "source" | "target"] {
  const rows = stack === "encoder" ? "source" : "target";
  return [rows, block.kind === "attention" && block.memory ? "source" : rows];
}

export function nats(x: number): string {
  return x.toFixed(2).replace("-", "−").replace(/^−(0\.00)$/, "$1");
}

export function change(x: number): string {
  return x >= 0.005 ? `+${nats(x)}` : nats(x);
}

/** A part of the tab, and what brings it up to date. */
export type Card = [card: HTMLElement, update: () => void];
