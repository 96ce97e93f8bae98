// An activation's curve and, where the pointer is, its tangent: forward and backward of one number.

import { el, number, svg, worked } from "../dom.ts";
import { choice, range, short } from "./board.ts";
import * as m from "./maths.ts";
import { t } from "./text.ts";

type Name = keyof typeof m.ACTIVATIONS;

const NAMES: [Name, string][] = [
  ["gelu", "GELU"],
  ["gelu_tanh", "GELU (tanh)"],
  ["relu", "ReLU"],
  ["leaky_relu", "leaky ReLU"],
  ["silu", "SiLU"],
];
const [LEFT, RIGHT, BOTTOM, TOP] = [-4, 4, -1, 4];
const UNIT = 60;
const px = (x: number) => (UNIT * (x - LEFT)).toFixed(2);
const py = (y: number) => (UNIT * (TOP - y)).toFixed(2);

export function activation(host: HTMLElement): void {
  let name: Name = host.dataset.start === "relu" ? "relu" : "gelu";
  let [x, dy] = [-0.75, 1];
  const curve = svg("path", { class: "pf-curve" });
  const slopes = svg("path", { class: "pf-slope" });
  const tangent = svg("line", { class: "pf-tangent" });
  const dot = svg("circle", { class: "pf-dot", r: 7 });
  const ticks = [-4, -3, -2, -1, 1, 2, 3, 4].flatMap((v) => [
    svg("text", { class: "pf-tick", x: px(v), y: Number(py(0)) + 18, "text-anchor": "middle" }, String(v).replace("-", "−")),
    ...(v >= BOTTOM ? [svg("text", { class: "pf-tick", x: Number(px(0)) - 8, y: Number(py(v)) + 5, "text-anchor": "end" }, String(v).replace("-", "−"))] : []),
  ]);
  const axes = svg("path", { class: "pf-axis", d: `M0 ${py(0)}H${px(RIGHT)}M${px(0)} 0V${py(BOTTOM)}` });
  const drawing = svg(
    "svg",
    { viewBox: `-12 -12 ${px(RIGHT + 0.4)} ${UNIT * (TOP - BOTTOM) + 24}`, class: "pf-plot", role: "img" },
    axes, ...ticks, slopes, curve, tangent, dot,
  );
  const follow = (event: PointerEvent) => {
    const box = drawing.getBoundingClientRect();
    const width = UNIT * (RIGHT + 0.4 - LEFT);
    const at = ((event.clientX - box.left) / box.width) * width - 12;
    x = Math.round(100 * Math.min(RIGHT, Math.max(LEFT, at / UNIT + LEFT))) / 100;
    slider.set(x);
    update();
  };
  for (const kind of ["pointermove", "pointerdown"] as const) {
    drawing.addEventListener(kind, (event) => follow(event as PointerEvent));
  }
  const work = el("p", { class: "pf-worked" });
  const check = el("p", { class: "pf-note" });
  const text = (v: number) => v.toFixed(2).replace("-", "−");
  const slider = range("x", [LEFT, RIGHT, 0.01], x, (value) => ((x = value), update()), text);
  const upstream = range("dy", [-2, 2, 0.1], dy, (value) => ((dy = value), update()), text);
  const functions = choice(t.functionName, NAMES, name, (chosen) => {
    name = chosen as Name;
    update();
  });

  function path(f: (x: number) => number): string {
    const points = Array.from({ length: 8 * 40 + 1 }, (_, i) => LEFT + i / 40);
    return `M${points.map((v) => `${px(v)} ${py(f(v))}`).join("L")}`;
  }

  function update(): void {
    const { y, slope } = m.ACTIVATIONS[name];
    curve.setAttribute("d", path(y));
    slopes.setAttribute("d", path(slope));
    const [value, rate] = [y(x), slope(x)];
    const half = 1.2 / Math.hypot(1, rate);
    for (const [end, by] of [["1", -half], ["2", half]] as const) {
      tangent.setAttribute(`x${end}`, px(x + by));
      tangent.setAttribute(`y${end}`, py(value + by * rate));
    }
    dot.setAttribute("cx", px(x));
    dot.setAttribute("cy", py(value));
    const { texts, result } = worked([dy, rate], (a, b) => a! * b!);
    work.textContent = `f(x) = ${number(value)}, f′(x) = ${number(rate)}, dx = dy f′(x) = ${texts[0]} × ${texts[1]} = ${result}`;
    const [central] = m.differences(([v]) => dy * y(v!), [x]);
    const kink = x === 0 && name.includes("relu") ? ` ${t.kink}` : "";
    check.textContent = `L = dy f(x); ${t.difference("x", number(central!))}.${kink}`;
    drawing.setAttribute("aria-label", `f(${text(x)}) = ${short(value)}, f′ = ${short(rate)}`);
  }

  const legend = el("p", { class: "pf-legend" }, el("span", { class: "pf-curve-key" }, t.curve), " ", el("span", { class: "pf-slope-key" }, "f′(x)"));
  host.replaceChildren(
    el("div", { class: "pf-controls" }, functions.root, slider.root, upstream.root),
    drawing, legend, work, check,
  );
  update();
}
