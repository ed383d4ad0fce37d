// SPDX-License-Identifier: Apache-2.0
// What ran where, what waited, and what all of it used, on one time axis.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { getTimeline, getUsage, type Bar, type Lanes, lanesOf, type RunUsage, type Span, type TimelineColumns } from "./activity";
import { go, setParams, to as link, useAddress } from "./address";
import type { Run } from "./api";
import { capital, duration, size, unitName } from "./format";
import { useLive } from "./live";
import { Failure, useNow } from "./parts";
import { color, SpanPlot, timeSplits, timeText } from "./span_plot";
import "./activity.css";

const RIGHT = 12;
const AXIS = 22;
const ZOOM = 1.6;
const MIN_SPAN_MS = 20;
const MAX_HEIGHT = 8000; // of the canvas

const STATES: Record<string, [string, string]> = {
  r: ["running", "accent"],
  d: ["done", "good"],
  f: ["failed", "bad"],
  l: ["lost", "wait"],
  s: ["stopped", "dim"],
  q: ["waiting", "wait"],
};

// ---- drawing ------------------------------------------------------------------------------------------

interface Picture {
  left: number; // width of the names of agents, in pixels
  groups: Lanes[];
  all: TimelineColumns;
  from: number;
  to: number;
  lane: number; // height of a lane
  selected: number; // an index of the columns; -1: none
  drag: [number, number] | null; // pixels
}

const GAP = 8; // between groups

function rows(groups: Lanes[], lane: number): { group: Lanes; top: number }[] {
  let top = 4;
  return groups.map((group) => {
    const row = { group, top };
    top += Math.max(lane * group.lanes.length, 14) + GAP;
    return row;
  });
}

export const heightOf = (groups: Lanes[], lane: number): number =>
  Math.min(MAX_HEIGHT, groups.reduce((sum, g) => sum + Math.max(lane * g.lanes.length, 14) + GAP, 4) + AXIS);

/** Diagonal lines, for what waits. */
function hatch(context: CanvasRenderingContext2D, stroke: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const c = tile.getContext("2d")!;
  c.strokeStyle = stroke;
  c.lineWidth = 1.2;
  c.beginPath();
  for (const shift of [-6, 0, 6]) {
    c.moveTo(shift, 6);
    c.lineTo(shift + 6, 0);
  }
  c.stroke();
  return context.createPattern(tile, "repeat") ?? stroke;
}

function clip(text: string, width: number, context: CanvasRenderingContext2D): string {
  if (context.measureText(text).width <= width) return text;
  while (text && context.measureText(`${text}…`).width > width) text = text.slice(0, -1);
  return `${text}…`;
}

function draw(canvas: HTMLCanvasElement, p: Picture): void {
  const context = canvas.getContext("2d")!;
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = canvas.clientHeight;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  context.scale(ratio, ratio);
  const x = (ms: number) => p.left + ((ms - p.from) / (p.to - p.from)) * (width - p.left - RIGHT);
  const fill = Object.fromEntries(Object.entries(STATES).map(([k, [, name]]) => [k, color(name)]));
  const waits = hatch(context, color("wait"));
  const splits = timeSplits(p.from, p.to, Math.max(2, width / 110));
  context.font = "11px system-ui, sans-serif";
  context.strokeStyle = color("line");
  context.fillStyle = color("dim");
  context.textAlign = "center";
  for (const at of splits) {
    context.beginPath();
    context.moveTo(x(at), 0);
    context.lineTo(x(at), height - AXIS);
    context.stroke();
    context.fillText(timeText(at, p.to - p.from), Math.min(x(at), width - 16), height - 6);
  }
  context.textAlign = "left";
  for (const { group, top } of rows(p.groups, p.lane)) {
    context.fillStyle = color("text");
    context.textBaseline = "top";
    context.fillText(clip(group.title, p.left - 8, context), 0, top + 1);
    context.textBaseline = "alphabetic";
    group.lanes.forEach((bars, i) => {
      for (const bar of bars) drawBar(context, p, bar, top + i * p.lane, x, fill, waits);
    });
  }
  if (p.drag) {
    context.fillStyle = `${color("accent")}33`;
    context.fillRect(Math.min(...p.drag), 0, Math.abs(p.drag[1] - p.drag[0]), height - AXIS);
  }
}

function drawBar(
  context: CanvasRenderingContext2D,
  p: Picture,
  bar: Bar,
  top: number,
  x: (ms: number) => number,
  fill: Record<string, string>,
  waits: CanvasPattern | string,
): void {
  if (bar.to < p.from || bar.from > p.to) return;
  const high = Math.max(1, p.lane - (p.lane > 6 ? 3 : p.lane > 2 ? 1 : 0));
  const left = Math.max(p.left, x(bar.from));
  const right = Math.max(left + 1, Math.min(x(bar.to), x(p.to)));
  const begun = bar.kind === "q" ? bar.to : Math.min(p.all.begun[bar.index] ?? bar.to, bar.to);
  const middle = Math.min(Math.max(left, x(begun)), right);
  if (middle - left >= 1) {
    context.fillStyle = waits;
    context.fillRect(left, top, middle - left, high);
    context.strokeStyle = fill.q!;
    context.strokeRect(left + 0.5, top + 0.5, middle - left - 1, high - 1);
  }
  if (bar.kind !== "q" && (right > middle || middle === left)) {
    context.fillStyle = fill[bar.kind] ?? fill.s!;
    context.globalAlpha = bar.kind === "r" ? 0.75 : 1;
    context.fillRect(middle, top, Math.max(1, right - middle - (right - middle > 3 ? 1 : 0)), high);
    context.globalAlpha = 1;
  }
  if (bar.index === p.selected) {
    context.strokeStyle = color("text");
    context.lineWidth = 2;
    context.strokeRect(left, top - 1, right - left, high + 2);
    context.lineWidth = 1;
  }
}

/** The attempt at a point of the canvas; -1: none. */
function find(p: Picture, width: number, px: number, py: number): number {
  const slack = ((p.to - p.from) / Math.max(1, width - p.left - RIGHT)) * 2;
  const at = p.from + ((px - p.left) / Math.max(1, width - p.left - RIGHT)) * (p.to - p.from);
  for (const { group, top } of rows(p.groups, p.lane)) {
    const bars = group.lanes[Math.floor((py - top) / p.lane)];
    if (py < top || !bars) continue;
    return bars.find((b) => b.from - slack <= at && at <= b.to + slack)?.index ?? -1;
  }
  return -1;
}

// ---- description of an attempt --------------------------------------------------------------------------

export function describe(all: TimelineColumns, i: number, now: number): string {
  const begun = all.begun[i] ?? null;
  const ended = all.ended[i] ?? now;
  const words = [STATES[all.state[i]!]?.[0] ?? "", all.agents[all.agent[i]!] ?? ""];
  if (all.attempt[i]! > 1) words.unshift(`attempt ${all.attempt[i]}`);
  if (all.gpus[i]!.length) words.push(`GPU ${all.gpus[i]!.join(", ")}`);
  if (all.started[i]! - all.queued[i]! >= 50) words.push(`queued for ${duration(all.started[i]! - all.queued[i]!)}`);
  if (all.held[i]) words.push(`held for ${duration((begun ?? ended) - all.started[i]!)}: ${all.held[i]}`);
  if (begun !== null) words.push(`ran for ${duration(ended - begun)}`);
  return words.filter(Boolean).join(", ");
}

// ---- the view --------------------------------------------------------------------------------------------

/** Space left of the plots, for names of agents and values: less on a phone. */
function useLeft(): number {
  const [left, setLeft] = useState(110);
  useEffect(() => {
    const narrow = matchMedia("(max-width: 600px)");
    const update = () => setLeft(narrow.matches ? 66 : 110);
    update();
    narrow.addEventListener("change", update);
    return () => narrow.removeEventListener("change", update);
  }, []);
  return left;
}

/** The part of the run that the address selects. */
function spanOf(params: URLSearchParams): Span {
  const from = Number(params.get("from"));
  const to = Number(params.get("to"));
  return params.has("to") && from >= 0 && to > from ? { from, to } : null;
}

/** The last value, while the next one is loaded. */
function useLast<T>(value: T | undefined, key: unknown): T | undefined {
  const last = useRef<{ key: unknown; value?: T }>({ key });
  if (last.current.key !== key) last.current = { key };
  if (value !== undefined) last.current.value = value;
  return last.current.value;
}

/** The end of the run, or now, by the server's clock. */
function useEnd(run: Run, all: TimelineColumns | undefined, span: Span): number {
  const now = useNow();
  const received = useMemo(() => Date.now(), [all]);
  const isLive = run.state === "running" || run.state === "waiting";
  const known = useRef(1);
  if (!all) return known.current;
  if (!span) known.current = all.to + (isLive ? Math.max(0, now - received) : 0);
  else if (isLive) known.current = Math.max(known.current, now - all.origin);
  return known.current;
}

function Legend({ all }: { all: TimelineColumns }) {
  const shown = Object.entries(STATES).filter(([letter]) => letter !== "q" && all.state.includes(letter));
  return (
    <span class="timeline-legend">
      {shown.map(([letter, [name, tint]]) => (
        <span key={letter}>
          <i class={`swatch ${tint}`} /> {name}
        </span>
      ))}
      <span>
        <i class="swatch hatched" /> waiting
      </span>
    </span>
  );
}

interface ViewProps {
  left: number;
  run: Run;
  all: TimelineColumns;
  from: number;
  to: number;
  now: number;
  zoom: (from: number, to: number) => void;
  whole: () => void;
}

/** The lanes, which mouse and keyboard move, zoom and select. */
function LaneView({ left, run, all, from, to, now, zoom, whole }: ViewProps) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [selected, setSelected] = useState(-1);
  const dragFrom = useRef<number | null>(null); // events may come faster than the view is rendered
  const [drag, setDrag] = useState<[number, number] | null>(null);
  const endDrag = () => {
    dragFrom.current = null;
    setDrag(null);
  };
  const [width, setWidth] = useState(0);
  const groups = useMemo(() => lanesOf(all, now), [all, now]);
  const count = groups.reduce((sum, g) => sum + g.lanes.length, 0);
  const lane = count <= 40 ? 16 : count <= 120 ? 9 : count <= 400 ? 5 : 3;
  const height = heightOf(groups, lane);
  const picture: Picture = { left, groups, all, from, to, lane, selected, drag };
  const latest = useRef(picture);
  latest.current = picture;
  useEffect(() => {
    if (canvas.current) draw(canvas.current, picture);
  }, [groups, from, to, selected, drag, width, height, left]);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(element.clientWidth));
    observer.observe(element);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const repaint = () => draw(element, latest.current);
    scheme.addEventListener("change", repaint);
    return () => {
      observer.disconnect();
      scheme.removeEventListener("change", repaint);
    };
  }, []);
  const timeAt = (px: number) => from + ((px - left) / Math.max(1, (canvas.current?.clientWidth ?? 1) - left - RIGHT)) * (to - from);
  const around = (at: number, factor: number) => zoom(at - (at - from) * factor, at + (to - at) * factor);
  const move = (part: number) => zoom(from + (to - from) * part, to + (to - from) * part);
  useEffect(() => {
    const element = canvas.current;
    if (!element) return;
    const onWheel = (e: WheelEvent) => {
      if (!e.ctrlKey && !e.metaKey && document.activeElement !== element) return;
      e.preventDefault();
      if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) move(e.deltaX / 1000);
      else around(timeAt(e.offsetX), e.deltaY > 0 ? ZOOM : 1 / ZOOM);
    };
    element.addEventListener("wheel", onWheel, { passive: false });
    return () => element.removeEventListener("wheel", onWheel);
  });
  const open = (index: number) => index >= 0 && go(link(`runs/${run.run}/trials/${all.trial[index]}`));
  const step = (by: number) => {
    const order = all.trial.map((_, i) => i).sort((a, b) => all.started[a]! - all.started[b]! || a - b);
    const at = order.indexOf(selected);
    setSelected(order[at < 0 ? (by > 0 ? 0 : order.length - 1) : Math.min(Math.max(at + by, 0), order.length - 1)] ?? -1);
  };
  const keys: Record<string, () => void> = {
    "+": () => around((from + to) / 2, 1 / ZOOM),
    "=": () => around((from + to) / 2, 1 / ZOOM),
    "-": () => around((from + to) / 2, ZOOM),
    "0": whole,
    Escape: whole,
    ArrowLeft: () => move(-0.2),
    ArrowRight: () => move(0.2),
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    Enter: () => open(selected),
  };
  return (
    <>
      <div class="timeline-scroll">
        <canvas
          ref={canvas}
          class="timeline"
          style={{ height: `${height}px` }}
          tabIndex={0}
          role="application"
          aria-label={`Timeline of ${all.trial.length} ${all.trial.length === 1 ? "attempt" : "attempts"}. Arrow left and right move, plus and minus zoom, 0 shows all; arrow up and down select an attempt, Enter opens its trial.`}
          onKeyDown={(e) => {
            const action = e.ctrlKey || e.metaKey || e.altKey ? undefined : keys[e.key];
            if (!action) return;
            e.preventDefault();
            action();
          }}
          onPointerDown={(e) => {
            if (e.pointerType !== "mouse" || e.button !== 0 || e.offsetX <= left) return;
            dragFrom.current = e.offsetX;
            setDrag([e.offsetX, e.offsetX]);
          }}
          onPointerMove={(e) => {
            const start = dragFrom.current;
            if (start !== null) setDrag([start, Math.max(left, e.offsetX)]);
            else setSelected(find(picture, e.currentTarget.clientWidth, e.offsetX, e.offsetY));
          }}
          onPointerUp={(e) => {
            const start = dragFrom.current;
            const end = Math.max(left, e.offsetX);
            endDrag();
            if (start !== null && Math.abs(end - start) > 4) zoom(timeAt(Math.min(start, end)), timeAt(Math.max(start, end)));
            else open(find(picture, e.currentTarget.clientWidth, e.offsetX, e.offsetY));
          }}
          onPointerLeave={endDrag}
        />
      </div>
      <p class="timeline-now" aria-live="polite">
        {selected >= 0 && selected < all.trial.length ? (
          <>
            <a href={link(`runs/${run.run}/trials/${all.trial[selected]}`)}>{capital(unitName(run, all.trial[selected]!))}</a>: {describe(all, selected, now)}
          </>
        ) : (
          <span class="dim">Drag to zoom. Hover over an attempt to see its details; click it to open its trial.</span>
        )}
      </p>
    </>
  );
}

const number = (x: number) => String(Number(x.toPrecision(3)));

function Charts({ left, usage, from, to, onSelect }: { left: number; usage: RunUsage; from: number; to: number; onSelect: (from: number, to: number) => void }) {
  const common = { time: usage.time, from, to, left, group: "timeline", onSelect };
  const peak = (values: number[]) => Math.max(0, ...values);
  const charts: [string, (x: number) => string, string, number[]][] = [
    ["Memory", size, "accent", usage.memory],
    ["CPU cores", number, "good", usage.cpu],
    ["GPU memory", size, "wait", usage.gpu_memory],
    ["GPUs in use", number, "wait", usage.gpu_use],
  ];
  const measured = charts.filter(([, , , values]) => peak(values) > 0); // trials under a second are not sampled
  return (
    <>
      {measured.map(([title, text, tint, values]) => (
        <div key={title} class="timeline-chart">
          <h3>
            {title} <span class="dim">up to {text(peak(values))}</span>
          </h3>
          <SpanPlot {...common} label={`${title} of all trials over time, up to ${text(peak(values))}`} text={text} isBytes={text === size} lines={[{ label: title, color: tint, values }]} />
        </div>
      ))}
      <div class="timeline-chart">
        <h3>
          Trials <span class="dim">running up to {number(peak(usage.running))}, waiting up to {number(peak(usage.waiting))}</span>
        </h3>
        <SpanPlot
          {...common}
          label="Running and waiting trials over time"
          text={number}
          lines={[
            { label: "running", color: "accent", values: usage.running },
            { label: "waiting", color: "wait", values: usage.waiting },
          ]}
        />
      </div>
    </>
  );
}

export function Timeline({ run }: { run: Run }) {
  const { params } = useAddress();
  const span = spanOf(params);
  const key = `${run.run} ${span?.from ?? ""} ${span?.to ?? ""}`;
  const timeline = useLive(`timeline ${key}`, () => getTimeline(run.run, span));
  const sums = useLive(`usage ${key}`, () => getUsage(run.run, span));
  const all = useLast(timeline.value, run.run);
  const usage = useLast(sums.value, run.run);
  const end = useEnd(run, all, span);
  const left = useLeft();
  const { from, to } = span ?? { from: 0, to: end };
  const whole = () => setParams({ from: null, to: null });
  const zoom = (a: number, b: number) => {
    const width = Math.max(MIN_SPAN_MS, b - a);
    const first = Math.max(0, Math.min(a, Math.max(0, end - width)));
    if (width >= end) whole();
    else setParams({ from: String(Math.round(first)), to: String(Math.round(first + width)) });
  };
  const scale = (factor: number) => zoom((from + to) / 2 - ((to - from) / 2) * factor, (from + to) / 2 + ((to - from) / 2) * factor);
  return (
    <section class="timeline-view">
      <header class="bar">
        <h2>Timeline</h2>
        <span class="buttons">
          <button onClick={() => scale(1 / ZOOM)} aria-label="Zoom in">
            +
          </button>
          <button onClick={() => scale(ZOOM)} aria-label="Zoom out" disabled={!span}>
            −
          </button>
          <button onClick={whole} disabled={!span}>
            Whole run
          </button>
        </span>
        {all && <Legend all={all} />}
      </header>
      <Failure error={timeline.error ?? sums.error} />
      {all && all.trial.length === 0 && <p class="dim">{span ? "No attempts in this time range." : "Nothing has run yet."}</p>}
      {all && all.trial.length > 0 && <LaneView left={left} run={run} all={all} from={from} to={to} now={end} zoom={zoom} whole={whole} />}
      {all && !all.is_complete && <p class="dim">Only the 5,000 longest attempts in this range are drawn: zoom in to see the others. The charts below include all.</p>}
      {usage && <Charts left={left} usage={usage} from={from} to={to} onSelect={zoom} />}
    </section>
  );
}
