// A picture of what is in view, painted anew on a canvas. The page's policy loads no image, so neither SVG nor HTML
// can be drawn as one: boxes, text, shapes and canvases are drawn here one by one, where the browser has put them.

/** Pixels around the picture and of the line below it; the longest side of a picture. */
const [PAD, LINE, LONGEST] = [14, 26, 8192];
/** What only works on the page. */
const CONTROLS = "select, input, textarea, .segmented, .choices > button, label, [hidden], dialog";

export interface Look {
  ground: string;
  ink: string;
  family: string;
}

/** An element as it is seen, at `ratio` pixels a unit, with a line of words below it. */
export function painted(element: HTMLElement, words: string, look: Look, ratio = 2): HTMLCanvasElement {
  // What stays in view while one scrolls would lie on top of the rest.
  const staying = [...element.querySelectorAll<HTMLElement>("*")].filter((inside) => getComputedStyle(inside).position === "sticky");
  for (const inside of staying) inside.style.position = "static";
  try {
    return framed(element, words, look, ratio);
  } finally {
    for (const inside of staying) inside.style.position = "";
  }
}

function framed(element: HTMLElement, words: string, { ground, ink, family }: Look, ratio: number): HTMLCanvasElement {
  const { left, top, width, height } = element.getBoundingClientRect();
  const [wide, high] = [width + 2 * PAD, height + 2 * PAD + LINE];
  const scale = Math.min(ratio, LONGEST / Math.max(wide, high));
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [Math.round(wide * scale), Math.round(high * scale)];
  const context = canvas.getContext("2d", { willReadFrequently: true })!;
  context.fillStyle = ground;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.setTransform(scale, 0, 0, scale, (PAD - left) * scale, (PAD - top) * scale);
  paint(context, element);
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.font = `13px ${family}`;
  context.fillStyle = ink;
  context.fillText(words, PAD, high - PAD, width);
  return canvas;
}

function paint(context: CanvasRenderingContext2D, node: Node): void {
  if (node instanceof Text) write(context, node);
  if (!(node instanceof Element) || node.matches(CONTROLS)) return;
  const style = getComputedStyle(node);
  if (style.display === "none" || style.visibility !== "visible" || Number(style.opacity) === 0) return;
  context.save();
  context.globalAlpha *= Number(style.opacity);
  if (node instanceof SVGElement) draw(context, node, style);
  else {
    const box = node.getBoundingClientRect();
    fill(context, box, style);
    key(context, node, box);
    context.imageSmoothingEnabled = style.imageRendering !== "pixelated";
    if (node instanceof HTMLCanvasElement && box.width > 0) context.drawImage(node, box.left, box.top, box.width, box.height);
    if (style.overflow !== "visible" && style.display !== "inline") {
      context.beginPath();
      context.rect(box.left, box.top, box.width, box.height);
      context.clip();
    }
  }
  if (!(node instanceof SVGTextElement)) for (const child of node.childNodes) paint(context, child);
  context.restore();
}

/** A box's ground, the colours that run over it, its edges and the lines inside of them. */
function fill(context: CanvasRenderingContext2D, box: DOMRect, style: CSSStyleDeclaration): void {
  const { left, top, width, height } = box;
  if (width === 0 || height === 0 || style.display === "contents") return;
  const shape = new Path2D();
  shape.roundRect(left, top, width, height, Math.min(parseFloat(style.borderTopLeftRadius) || 0, width / 2, height / 2));
  context.fillStyle = style.backgroundColor;
  context.fill(shape);
  const colours = style.backgroundImage.match(/(?:rgba?|color|oklab|oklch)\([^()]*\)/g);
  if (colours && style.backgroundImage.startsWith("linear-gradient")) {
    const [wide, high] = [width, height].map((all, i) => length(style.backgroundSize.split(" ")[i] ?? "auto", all)) as [number, number];
    const [x, y] = [width - wide, height - high].map((free, i) => length(style.backgroundPosition.split(" ")[i] ?? "0%", free)) as [number, number];
    const across = /^linear-gradient\((?:to right|90deg)/.test(style.backgroundImage);
    const run = context.createLinearGradient(left, top, across ? left + width : left, across ? top : top + height);
    colours.forEach((colour, i) => run.addColorStop(colours.length === 1 ? 0 : i / (colours.length - 1), colour));
    context.fillStyle = run;
    context.save();
    context.clip(shape);
    context.fillRect(left + x, top + y, wide, high);
    context.restore();
  }
  const sides = (["Top", "Right", "Bottom", "Left"] as const).map((side) => ({
    wide: style[`border${side}Style`] === "none" ? 0 : parseFloat(style[`border${side}Width`]),
    colour: style[`border${side}Color`],
  }));
  if (sides.every(({ wide }) => wide > 0)) line(context, sides[0]!.colour, sides[0]!.wide, shape, style.borderTopStyle);
  else {
    const ends = [[0, 0, 1, 0], [1, 0, 1, 1], [0, 1, 1, 1], [0, 0, 0, 1]] as const;
    sides.forEach(({ wide, colour }, i) => {
      if (wide === 0) return;
      const [x0, y0, x1, y1] = ends[i]!;
      const edge = new Path2D();
      edge.moveTo(left + x0 * width, top + y0 * height);
      edge.lineTo(left + x1 * width, top + y1 * height);
      line(context, colour, wide, edge);
    });
  }
  const inner = /^((?:rgba?|color|oklab)\([^()]*\)) 0px 0px 0px (\d+)px( inset)?$/.exec(style.boxShadow);
  if (inner) line(context, inner[1]!, Number(inner[2]), shape);
}

/** The coloured key before a word of a legend, and the bar of a fraction. */
function key(context: CanvasRenderingContext2D, node: Element, box: DOMRect): void {
  const before = getComputedStyle(node, "::before");
  const [wide, high] = [parseFloat(before.width), parseFloat(before.height)];
  if (before.content !== "none" && before.position === "static" && wide > 0 && high > 0) {
    fill(context, new DOMRect(box.left, box.top + (box.height - high) / 2, wide, high), before);
  }
  if (node.localName !== "mfrac") return;
  const bar = new Path2D();
  bar.rect(box.left, node.children[1]!.getBoundingClientRect().top - 1, box.width, 1);
  context.fillStyle = getComputedStyle(node).color;
  context.fill(bar);
}

function line(context: CanvasRenderingContext2D, colour: string, wide: number, path: Path2D, kind = ""): void {
  context.strokeStyle = colour;
  context.lineWidth = wide;
  context.setLineDash(kind === "dashed" ? [3 * wide, 2 * wide] : []);
  context.stroke(path);
}

/** "40%", "3px" or "auto" of a whole. */
function length(text: string, whole: number): number {
  if (text === "auto") return whole;
  return text.endsWith("%") ? (parseFloat(text) / 100) * whole : parseFloat(text);
}

const font = (style: CSSStyleDeclaration) => `${style.fontStyle} ${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;

/** Words one by one, each where it is; a line that runs down is turned. */
function write(context: CanvasRenderingContext2D, node: Text): void {
  const style = getComputedStyle(node.parentElement!);
  context.font = font(style);
  context.fillStyle = style.color;
  context.textBaseline = "alphabetic";
  const range = document.createRange();
  for (const { 0: word, index } of node.data.matchAll(/\S+/g)) {
    range.setStart(node, index);
    range.setEnd(node, index + word.length);
    const { left, top, width, height } = range.getBoundingClientRect();
    if (width === 0) continue;
    const { fontBoundingBoxAscent: up, fontBoundingBoxDescent: down } = context.measureText(word);
    if (style.writingMode === "horizontal-tb") {
      context.fillText(word, left, top + (height - up - down) / 2 + up);
      continue;
    }
    context.save();
    context.translate(left + (width - up - down) / 2 + down, top);
    context.rotate(Math.PI / 2);
    context.fillText(word, 0, 0);
    context.restore();
  }
}

/** A shape of a drawing, or its words, where the drawing has been scaled to. */
function draw(context: CanvasRenderingContext2D, node: SVGElement, style: CSSStyleDeclaration): void {
  if (!(node instanceof SVGGraphicsElement) || node instanceof SVGSVGElement) return;
  const placed = node.getScreenCTM();
  if (!placed || node.closest("clipPath")) return;
  const before = context.getTransform();
  context.transform(placed.a, placed.b, placed.c, placed.d, placed.e, placed.f);
  const clip = /^url\(#(.+)\)$/.exec(node.getAttribute("clip-path") ?? "")?.[1];
  const window = clip ? document.getElementById(clip)?.querySelector("rect") : null;
  if (window) context.clip(pathOf(window)!);
  const path = pathOf(node);
  const paints = (colour: string) => colour !== "none";
  if (node instanceof SVGTextElement) {
    const at = (name: "x" | "y") => node[name].baseVal[0]?.value ?? 0;
    context.font = font(style);
    context.fillStyle = style.fill;
    context.textAlign = ({ middle: "center", end: "right" } as const)[style.textAnchor as "end"] ?? "left";
    context.fillText(node.textContent!, at("x"), at("y"));
    context.textAlign = "left";
  } else if (path) {
    const own = context.globalAlpha;
    context.globalAlpha = own * Number(style.fillOpacity);
    context.fillStyle = style.fill;
    if (paints(style.fill)) context.fill(path);
    context.globalAlpha = own * Number(style.strokeOpacity);
    context.strokeStyle = style.stroke;
    context.lineWidth = parseFloat(style.strokeWidth);
    context.lineCap = style.strokeLinecap as CanvasLineCap;
    context.setLineDash(style.strokeDasharray === "none" ? [] : style.strokeDasharray.split(/[, ]+/).map(parseFloat));
    if (paints(style.stroke)) context.stroke(path);
    context.globalAlpha = own;
  }
  context.setTransform(before);
}

function pathOf(node: SVGElement): Path2D | null {
  const path = new Path2D();
  const number = (name: string) => Number(node.getAttribute(name) ?? 0);
  if (node instanceof SVGPathElement) return new Path2D(node.getAttribute("d") ?? "");
  if (node instanceof SVGRectElement) path.rect(number("x"), number("y"), number("width"), number("height"));
  else if (node instanceof SVGCircleElement) path.arc(number("cx"), number("cy"), number("r"), 0, 2 * Math.PI);
  else if (node instanceof SVGLineElement) {
    path.moveTo(number("x1"), number("y1"));
    path.lineTo(number("x2"), number("y2"));
  } else if (node instanceof SVGPolylineElement) {
    for (const { x, y } of node.points) path.lineTo(x, y);
  } else return null;
  return path;
}
