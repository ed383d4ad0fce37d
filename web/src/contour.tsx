// SPDX-License-Identifier: Apache-2.0
// The metric over two hyperparameters: interpolated between the trials, with the trials as points.
import { useMemo, useState } from "preact/hooks";
import { setParams } from "./address";
import type { Run } from "./api";
import { Canvas, cutText, pointAt } from "./canvas";
import { color, thin, useScheme } from "./chart";
import { heat } from "./colors";
import { metric } from "./format";
import { nearest, openPoint, pointText } from "./points";
import { isLogAxis, makeScale, type Scale } from "./scale";
import type { Column, Trials } from "./trials";

const GRID = 72;
const POINTS = 1500; // for the interpolation
const HEIGHT = 460;
const LEFT = 70;
const RIGHT = 90;
const TOP = 12;
const BOTTOM = 48;
const LEVELS = 8;

interface Point {
  x: number;
  y: number;
  value: number;
  row: number; // the index of the trial
}

interface Grid {
  cells: Float64Array;
  low: number;
  high: number;
}

const INSET = 0.04; // points at the edge of the range are not on the edge of the plot

function pointsOf(x: Scale, y: Scale, values: Column, rows: Uint32Array): Point[] {
  const position = (scale: Scale, i: number) => INSET + (1 - 2 * INSET) * scale.position(scale.column.numbers[i]!);
  return thin(
    [...rows].map((i) => ({ x: position(x, i), y: position(y, i), value: values.numbers[i]!, row: i })),
    POINTS,
  ).filter((p) => !Number.isNaN(p.x + p.y + p.value));
}

/** Weights fall with the distance, with a width that fits the number of points. */
function interpolate(points: Point[]): Grid {
  const cells = new Float64Array(GRID * GRID);
  const width = Math.max(0.02, 0.5 / Math.sqrt(points.length));
  const factor = -1 / (2 * width * width);
  let low = Infinity;
  let high = -Infinity;
  for (let row = 0; row < GRID; row++)
    for (let column = 0; column < GRID; column++) {
      const x = (column + 0.5) / GRID;
      const y = (row + 0.5) / GRID;
      let sum = 0;
      let weights = 0;
      for (const p of points) {
        const d = (p.x - x) ** 2 + (p.y - y) ** 2;
        const w = Math.exp(d * factor) + 1e-6 / (d + 1e-3); // far from all points, the nearest ones count
        sum += w * p.value;
        weights += w;
      }
      const value = sum / weights;
      cells[row * GRID + column] = value;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  return { cells, low, high };
}

/** The grid as a picture, a pixel for each cell. */
function picture(grid: Grid): HTMLCanvasElement {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = GRID;
  const context = canvas.getContext("2d")!;
  const image = context.createImageData(GRID, GRID);
  grid.cells.forEach((value, i) => {
    const at = ((GRID - 1 - Math.floor(i / GRID)) * GRID + (i % GRID)) * 4;
    const [r, g, b] = heat((value - grid.low) / (grid.high - grid.low || 1));
    image.data.set([r, g, b, 255], at);
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

type Segment = [number, number, number, number];

/** Lines of equal value, by marching squares; positions from 0 to 1. */
function contourLines(grid: Grid, level: number): Segment[] {
  const at = (column: number, row: number) => grid.cells[row * GRID + column]!;
  const segments: Segment[] = [];
  for (let row = 0; row < GRID - 1; row++)
    for (let column = 0; column < GRID - 1; column++) {
      const corners: [number, number][] = [[column, row], [column + 1, row], [column + 1, row + 1], [column, row + 1]];
      const crossings: number[] = [];
      for (let k = 0; k < 4; k++) {
        const [x0, y0] = corners[k]!;
        const [x1, y1] = corners[(k + 1) % 4]!;
        const a = at(x0, y0) - level;
        const b = at(x1, y1) - level;
        if (a < 0 === b < 0) continue;
        const t = a / (a - b);
        crossings.push((x0 + t * (x1 - x0) + 0.5) / GRID, (y0 + t * (y1 - y0) + 0.5) / GRID);
      }
      for (let k = 0; k + 3 < crossings.length; k += 4) segments.push(crossings.slice(k, k + 4) as Segment);
    }
  return segments;
}

function drawScale(c: CanvasRenderingContext2D, grid: Grid, x: number, height: number): void {
  for (let y = 0; y < height; y++) {
    c.fillStyle = `rgb(${heat(1 - y / height).join(",")})`;
    c.fillRect(x, TOP + y, 14, 1.5);
  }
  c.fillStyle = color("text");
  c.textAlign = "left";
  c.textBaseline = "middle";
  for (let k = 0; k <= 4; k++)
    c.fillText(cutText(c, metric(Number((grid.low + ((grid.high - grid.low) * k) / 4).toPrecision(4))), 60), x + 20, TOP + height * (1 - k / 4));
}

function drawTicks(c: CanvasRenderingContext2D, x: Scale, y: Scale, width: number, height: number): void {
  const inside = (position: number) => INSET + (1 - 2 * INSET) * position;
  c.fillStyle = color("text");
  c.textAlign = "center";
  c.textBaseline = "top";
  for (const { position, text } of x.ticks) c.fillText(cutText(c, text, 80), LEFT + inside(position) * width, TOP + height + 6);
  c.fillText(x.column.title + (x.isLog ? " (log)" : ""), LEFT + width / 2, TOP + height + 26);
  c.textAlign = "right";
  c.textBaseline = "middle";
  for (const { position, text } of y.ticks) c.fillText(cutText(c, text, LEFT - 30), LEFT - 6, TOP + (1 - inside(position)) * height);
  c.save();
  c.translate(10, TOP + height / 2);
  c.rotate(-Math.PI / 2);
  c.textAlign = "center";
  c.fillText(y.column.title + (y.isLog ? " (log)" : ""), 0, 0);
  c.restore();
}

interface Props {
  run: Run;
  trials: Trials;
  rows: Uint32Array;
  params: URLSearchParams;
}

function Chooser({ name, label, names, value }: { name: string; label: string; names: string[]; value: string }) {
  return (
    <label>
      {label}{" "}
      <select value={value} onChange={(e) => setParams({ [name]: e.currentTarget.value })}>
        {names.map((n) => (
          <option key={n}>{n}</option>
        ))}
      </select>
    </label>
  );
}

interface Hovered {
  point: Point;
  left: number;
  top: number;
  isBefore: boolean; // its text is on the left
}

/** The point under the pointer. */
function pointUnder(points: Point[], e: PointerEvent): Hovered | null {
  const width = (e.currentTarget as Element).clientWidth - LEFT - RIGHT;
  const at = (n: number): [number, number] => [LEFT + points[n]!.x * width, TOP + (1 - points[n]!.y) * (HEIGHT - TOP - BOTTOM)];
  const { x, y } = pointAt(e);
  const n = nearest(points.length, at, x, y);
  if (n < 0) return null;
  const [left, top] = at(n);
  return { point: points[n]!, left, top, isBefore: points[n]!.x > 0.5 };
}

export function Contour({ run, trials, rows, params }: Props) {
  useScheme();
  const names = trials.paramNames;
  const nameX = names.includes(params.get("x") ?? "") ? params.get("x")! : (names[0] ?? "");
  const nameY = names.includes(params.get("y") ?? "") ? params.get("y")! : (names.find((n) => n !== nameX) ?? "");
  const log = params.get("log");
  const made = useMemo(() => {
    const [x, y] = [nameX, nameY].map((name) => {
      const column = trials.column(`p:${name}`, run);
      return makeScale(column, isLogAxis(run, column, log));
    }) as [Scale, Scale];
    const points = pointsOf(x, y, trials.column("value", run), rows);
    const grid = interpolate(points);
    return { x, y, points, grid, image: picture(grid) };
  }, [trials, rows, nameX, nameY, log]);
  const [hovered, setHovered] = useState<Hovered | null>(null);
  if (names.length < 2) return <p>A contour plot needs two hyperparameters.</p>;
  const { x, y, points, grid, image } = made;
  const draw = (c: CanvasRenderingContext2D, fullWidth: number) => {
    const width = fullWidth - LEFT - RIGHT;
    const height = HEIGHT - TOP - BOTTOM;
    c.imageSmoothingEnabled = true;
    c.drawImage(image, LEFT, TOP, width, height);
    c.strokeStyle = "rgba(255,255,255,0.55)";
    c.lineWidth = 1;
    c.beginPath();
    for (let k = 1; k < LEVELS; k++)
      for (const [x0, y0, x1, y1] of contourLines(grid, grid.low + ((grid.high - grid.low) * k) / LEVELS)) {
        c.moveTo(LEFT + x0 * width, TOP + (1 - y0) * height);
        c.lineTo(LEFT + x1 * width, TOP + (1 - y1) * height);
      }
    c.stroke();
    c.fillStyle = "rgba(0,0,0,0.8)";
    c.strokeStyle = "rgba(255,255,255,0.9)";
    for (const p of points) {
      c.beginPath();
      c.arc(LEFT + p.x * width, TOP + (1 - p.y) * height, points.length > 300 ? 1.5 : 3, 0, 7);
      c.fill();
      if (points.length <= 300) c.stroke();
    }
    drawTicks(c, x, y, width, height);
    drawScale(c, grid, fullWidth - RIGHT + 16, height);
  };
  const hover = (e: PointerEvent) => {
    const found = pointUnder(points, e);
    (e.currentTarget as HTMLElement).style.cursor = found ? "pointer" : "";
    setHovered((old) => (old?.point === found?.point ? old : found));
  };
  const open = (e: PointerEvent) => {
    const found = pointUnder(points, e);
    if (found) openPoint(run, trials, found.point.row);
  };
  return (
    <section>
      <header class="bar">
        <h2>{run.metric} over two hyperparameters</h2>
        <Chooser name="x" label="x axis" names={names} value={nameX} />
        <Chooser name="y" label="y axis" names={names} value={nameY} />
      </header>
      {points.length < 3 ? (
        <p class="dim">Fewer than three trials have a value and both hyperparameters.</p>
      ) : (
        <Canvas
          height={HEIGHT}
          label={`${run.metric} over ${nameX} and ${nameY}`}
          draw={draw}
          onPointerMove={hover}
          onPointerLeave={() => setHovered(null)}
          onPointerUp={open}
        >
          {hovered && (
            <div class={hovered.isBefore ? "tip before" : "tip"} style={{ left: `${hovered.left}px`, top: `${hovered.top}px` }}>
              {pointText(run, trials, hovered.point.row)}
            </div>
          )}
        </Canvas>
      )}
    </section>
  );
}
