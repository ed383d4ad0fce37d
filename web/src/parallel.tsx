// SPDX-License-Identifier: Apache-2.0
// Parallel coordinates: a line for each trial through its hyperparameters and its value. Ranges of the axes select trials.
import { useMemo, useRef, useState } from "preact/hooks";
import { setParams } from "./address";
import type { Run } from "./api";
import { Canvas, cutText, pointAt } from "./canvas";
import { color, useScheme } from "./chart";
import { goodness } from "./colors";
import { count, metric } from "./format";
import { canBeLog, isLogAxis, makeScale, type Scale, toggled } from "./scale";
import { type Brush, type Brushes, setBrush, writeBrushes } from "./selection";
import { sortRows, type Trials } from "./trials";

const HEIGHT = 380;
const TOP = 34;
const BOTTOM = 16;
const SIDE = 56;
const LINES = 3000; // more are one area of color, and take long to draw
const BANDS = 24; // colors

interface Props {
  run: Run;
  trials: Trials;
  rows: Uint32Array; // those that are selected
  brushes: Brushes;
  params: URLSearchParams;
}

const axisX = (n: number, axes: number, width: number) => (axes > 1 ? SIDE + ((width - 2 * SIDE) * n) / (axes - 1) : width / 2);
const axisY = (position: number) => HEIGHT - BOTTOM - position * (HEIGHT - TOP - BOTTOM);
const positionAt = (y: number) => Math.min(1, Math.max(0, (HEIGHT - BOTTOM - y) / (HEIGHT - TOP - BOTTOM)));

/** From 0, the worst, to 1, the best, by rank; lines in this order, so that the best are on top. */
function ranks(run: Run, trials: Trials): { order: Uint32Array; rank: Float64Array } {
  const rank = new Float64Array(trials.count).fill(NaN);
  const value = trials.column("value", run);
  const all = Uint32Array.from(value.numbers.keys()).filter((i) => !Number.isNaN(value.numbers[i]!));
  const order = sortRows(all, value, !run.maximize);
  order.forEach((i, n) => (rank[i] = order.length > 1 ? n / (order.length - 1) : 1));
  const others = Uint32Array.from(rank.keys()).filter((i) => Number.isNaN(rank[i]!));
  return { order: Uint32Array.from([...others, ...order]), rank };
}

function sample(rows: Uint32Array, max: number): Uint32Array {
  if (rows.length <= max) return rows;
  const step = rows.length / max;
  return Uint32Array.from({ length: max }, (_, i) => rows[Math.floor((i + 1) * step) - 1]!); // with the last, the best
}

function drawLine(c: CanvasRenderingContext2D, scales: Scale[], i: number, width: number): void {
  let isDown = false;
  scales.forEach((scale, n) => {
    const position = scale.position(scale.column.numbers[i]!);
    if (Number.isNaN(position)) {
      isDown = false;
      return;
    }
    const x = axisX(n, scales.length, width);
    if (isDown) c.lineTo(x, axisY(position));
    else c.moveTo(x, axisY(position));
    isDown = true;
  });
}

function drawAxis(c: CanvasRenderingContext2D, scale: Scale, x: number, room: number, isRight: boolean): void {
  c.strokeStyle = color("dim");
  c.fillStyle = color("text");
  c.lineWidth = 1;
  c.beginPath();
  c.moveTo(x, TOP);
  c.lineTo(x, HEIGHT - BOTTOM);
  c.stroke();
  c.textAlign = "center";
  c.textBaseline = "alphabetic";
  c.font = c.font.replace(/^(bold )?/, "bold ");
  c.fillText(cutText(c, scale.column.title + (scale.isLog ? " (log)" : ""), room - 8), x, TOP - 14);
  c.font = c.font.replace(/^bold /, "");
  c.textAlign = isRight ? "left" : "right";
  c.textBaseline = "middle";
  const every = Math.ceil(scale.ticks.length / 20);
  scale.ticks.forEach(({ position, text }, n) => {
    if (n % every) return;
    const y = axisY(position);
    const label = cutText(c, text, Math.min(room - 14, 90));
    const left = isRight ? x + 6 : x - 6 - c.measureText(label).width;
    c.fillStyle = color("back");
    c.globalAlpha = 0.75;
    c.fillRect(left - 1, y - 7, c.measureText(label).width + 2, 14);
    c.globalAlpha = 1;
    c.fillStyle = color("text");
    c.fillText(label, isRight ? x + 6 : x - 6, y);
  });
}

/** The positions on an axis that a brush covers. */
function brushPositions(scale: Scale, brush: Brush): [number, number][] {
  if (!("texts" in brush)) return [[scale.position(Math.max(brush.low, scale.column.min)), scale.position(Math.min(brush.high, scale.column.max))]];
  const { texts } = scale.column;
  const half = texts && texts.length > 1 ? 0.4 / (texts.length - 1) : 0.1;
  return brush.texts
    .map((t) => texts?.indexOf(t) ?? -1)
    .filter((i) => i >= 0)
    .map((i) => [scale.position(i) - half, scale.position(i) + half]);
}

function drawBrush(c: CanvasRenderingContext2D, x: number, positions: [number, number][]): void {
  c.fillStyle = color("wait");
  c.strokeStyle = color("wait");
  for (const [low, high] of positions) {
    c.globalAlpha = 0.25;
    c.fillRect(x - 8, axisY(high), 16, Math.max(axisY(low) - axisY(high), 2));
    c.globalAlpha = 1;
    c.strokeRect(x - 8, axisY(high), 16, Math.max(axisY(low) - axisY(high), 2));
  }
}

/** What a range of positions on an axis selects. */
function brushOf(scale: Scale, from: number, to: number): Brush | null {
  const [low, high] = from < to ? [from, to] : [to, from];
  if (high - low < 0.01) return null; // a click
  const { texts } = scale.column;
  if (!texts) return { low: low <= 0 ? scale.column.min : scale.value(low), high: high >= 1 ? scale.column.max : scale.value(high) };
  const chosen = texts.filter((_, i) => scale.position(i) >= low - 0.02 && scale.position(i) <= high + 0.02);
  return chosen.length ? { texts: chosen } : null;
}

/** Ranges, order and scale of the axes by keyboard. */
function Axes({ scales, brushes, keys, params }: { scales: Scale[]; brushes: Brushes; keys: string[]; params: URLSearchParams }) {
  const move = (n: number, by: number) => {
    const next = [...keys];
    [next[n], next[n + by]] = [next[n + by]!, next[n]!];
    setParams({ axes: next.join(",") });
  };
  const bound = (scale: Scale, side: "low" | "high", text: string) => {
    const { column } = scale;
    const old = brushes.get(column.key);
    const range = old && !("texts" in old) ? { ...old } : { low: column.min, high: column.max };
    range[side] = text === "" ? (side === "low" ? column.min : column.max) : Number(text);
    writeBrushes(setBrush(brushes, column.key, range.low <= column.min && range.high >= column.max ? null : range));
  };
  const pick = (scale: Scale, text: string) => {
    const old = brushes.get(scale.column.key);
    const texts = old && "texts" in old ? old.texts : [];
    const next = texts.includes(text) ? texts.filter((t) => t !== text) : [...texts, text];
    writeBrushes(setBrush(brushes, scale.column.key, next.length ? { texts: next } : null));
  };
  return (
    <details class="axes">
      <summary>Axes</summary>
      {scales.map((scale, n) => {
        const { key, title, texts } = scale.column;
        const brush = brushes.get(key);
        const range = brush && !("texts" in brush) ? brush : null;
        return (
          <fieldset key={key}>
            <legend>{title}</legend>
            <button aria-label={`Move ${title} to the left`} disabled={n === 0} onClick={() => move(n, -1)}>
              ←
            </button>
            <button aria-label={`Move ${title} to the right`} disabled={n === scales.length - 1} onClick={() => move(n, 1)}>
              →
            </button>
            {canBeLog(scale.column) && (
              <label>
                <input type="checkbox" checked={scale.isLog} onChange={() => setParams({ log: toggled(params.get("log"), key) })} /> logarithmic
              </label>
            )}
            {texts
              ? texts.slice(0, 12).map((t) => (
                  <label key={t}>
                    <input type="checkbox" checked={!!brush && "texts" in brush && brush.texts.includes(t)} onChange={() => pick(scale, t)} /> {t}
                  </label>
                ))
              : (["low", "high"] as const).map((side) => (
                  <label key={side}>
                    {side === "low" ? "from" : "to"}{" "}
                    <input
                      type="number"
                      step="any"
                      aria-label={`${title} ${side === "low" ? "from" : "to"}`}
                      placeholder={metric(side === "low" ? scale.column.min : scale.column.max)}
                      value={range ? range[side] : ""}
                      onChange={(e) => bound(scale, side, e.currentTarget.value)}
                    />
                  </label>
                ))}
          </fieldset>
        );
      })}
    </details>
  );
}

/** The order of the axes in the address, and those that it does not name. */
function axisKeys(run: Run, trials: Trials, asked: string | null): string[] {
  const all = [...trials.paramNames.slice(0, 20).map((n) => `p:${n}`), ...(run.metric ? ["value"] : [])];
  const named = (asked ?? "").split(",").filter((key) => all.includes(key));
  return [...named, ...all.filter((key) => !named.includes(key))];
}

export function Parallel({ run, trials, rows, brushes, params }: Props) {
  const scheme = useScheme();
  const log = params.get("log");
  const keys = axisKeys(run, trials, params.get("axes"));
  const scales = useMemo(
    () => keys.map((key) => trials.column(key, run)).map((column) => makeScale(column, isLogAxis(run, column, log))),
    [trials, keys.join(","), log, run.search],
  );
  const { order, rank } = useMemo(() => ranks(run, trials), [trials]);
  const chosen = useMemo(() => {
    const isChosen = new Uint8Array(trials.count);
    for (const i of rows) isChosen[i] = 1;
    return {
      lines: sample(order.filter((i) => isChosen[i]), LINES),
      rest: sample(order.filter((i) => !isChosen[i]), LINES / 3),
    };
  }, [rows, order]);
  const drag = useRef<{ axis: number; from: number } | null>(null);
  const [dragged, setDragged] = useState<{ axis: number; positions: [number, number] } | null>(null);

  const draw = (c: CanvasRenderingContext2D, width: number) => {
    const room = scales.length > 1 ? (width - 2 * SIDE) / (scales.length - 1) : width;
    c.lineWidth = 1;
    c.globalAlpha = 0.35;
    c.strokeStyle = color("line");
    c.beginPath();
    for (const i of chosen.rest) drawLine(c, scales, i, width);
    c.stroke();
    c.globalAlpha = chosen.lines.length > 500 ? 0.5 : 0.85;
    for (let band = 0; band < BANDS; band++) {
      c.strokeStyle = run.metric ? goodness((band + 0.5) / BANDS, scheme) : color("accent");
      c.lineWidth = band === BANDS - 1 ? 1.6 : 1;
      c.beginPath();
      for (const i of chosen.lines) {
        const at = Number.isNaN(rank[i]!) ? 0 : Math.min(BANDS - 1, Math.floor(rank[i]! * BANDS));
        if (at === band) drawLine(c, scales, i, width);
      }
      c.stroke();
    }
    c.globalAlpha = 1;
    scales.forEach((scale, n) => {
      const x = axisX(n, scales.length, width);
      drawAxis(c, scale, x, Math.min(room, 2 * SIDE + 30), n === scales.length - 1 && scales.length > 1 ? true : n > 0);
      const brush = brushes.get(scale.column.key);
      if (dragged?.axis === n) drawBrush(c, x, [dragged.positions]);
      else if (brush) drawBrush(c, x, brushPositions(scale, brush));
    });
  };

  const axisOf = (e: PointerEvent): number => {
    const width = (e.currentTarget as Element).clientWidth;
    const { x } = pointAt(e);
    return scales.findIndex((_, n) => Math.abs(axisX(n, scales.length, width) - x) < 20);
  };
  const start = (e: PointerEvent) => {
    const axis = axisOf(e);
    if (axis < 0) return;
    (e.currentTarget as Element).setPointerCapture(e.pointerId);
    drag.current = { axis, from: positionAt(pointAt(e).y) };
  };
  const move = (e: PointerEvent) => {
    const to = positionAt(pointAt(e).y);
    (e.currentTarget as HTMLElement).style.cursor = drag.current || axisOf(e) >= 0 ? "crosshair" : "";
    if (!drag.current) return;
    const { axis, from } = drag.current;
    setDragged({ axis, positions: from < to ? [from, to] : [to, from] });
  };
  const end = (e: PointerEvent) => {
    if (!drag.current) return;
    const { axis, from } = drag.current;
    drag.current = null;
    setDragged(null);
    writeBrushes(setBrush(brushes, scales[axis]!.column.key, brushOf(scales[axis]!, from, positionAt(pointAt(e).y))));
  };

  const drawn = chosen.lines.length;
  return (
    <section>
      <h2>Parallel coordinates</h2>
      <p class="dim">
        Drag along an axis to select a range; click it to remove the range.
        {drawn < rows.length && ` ${count(drawn)} of ${count(rows.length)} lines are drawn.`}
      </p>
      <div class="wide">
        <div style={{ minWidth: `${scales.length * 72}px` }}>
          <Canvas
            height={HEIGHT}
            label={`Parallel coordinates of ${count(rows.length)} trials`}
            draw={draw}
            onPointerDown={start}
            onPointerMove={move}
            onPointerUp={end}
          />
        </div>
      </div>
      <Axes scales={scales} brushes={brushes} keys={keys} params={params} />
    </section>
  );
}
