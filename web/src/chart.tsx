// SPDX-License-Identifier: Apache-2.0
// Charts, drawn by uPlot.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { setParams } from "./address";
import type { Curve } from "./api";
import { metric } from "./format";
import { isToggled, logTicks, toggled } from "./scale";

/** A color of the style sheet. */
export const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** "dark" or "light"; a component that uses it is drawn again when that changes. */
export function useScheme(): string {
  const [query] = useState(() => matchMedia("(prefers-color-scheme: dark)"));
  const [isDark, setIsDark] = useState(query.matches);
  useEffect(() => {
    const update = () => setIsDark(query.matches);
    query.addEventListener("change", update);
    return () => query.removeEventListener("change", update);
  }, []);
  return isDark ? "dark" : "light";
}

export const axis = () => ({
  stroke: color("text"),
  grid: { stroke: color("line"), width: 1 },
  ticks: { stroke: color("line"), width: 1 },
});

/** A logarithmic scale as wide as the data, with lines at powers of ten, or also at 2 and 5 times these. */
export const logScale: uPlot.Scale = { distr: 3, range: (_, low, high) => (low > 0 ? [low / 1.1, high * 1.1] : [1, 10]) };
export const logAxis: uPlot.Axis = {
  splits: (_, __, low, high) => logTicks(low, high),
  filter: (_, ticks) => ticks,
  values: (_, ticks) => ticks.map((x) => metric(x)),
};

/** Whole numbers only: there is no trial 1.5. */
export const wholeAxis: uPlot.Axis = { incrs: [1, 10, 100, 1e3, 1e4, 1e5, 1e6].flatMap((n) => [n, 2 * n, 5 * n]) };

/** Whether a logarithmic axis can show them all. */
export const arePositive = (values: Iterable<number | null | undefined>) => [...values].every((v) => v === null || v === undefined || v > 0);

/** The choice of a logarithmic axis. */
export function LogChoice({ label, isLog, onChange }: { label?: string; isLog: boolean; onChange: (isLog: boolean) => void }) {
  return (
    <label>
      <input type="checkbox" aria-label={label} checked={isLog} onChange={(e) => onChange(e.currentTarget.checked)} />{" "}
      logarithmic
    </label>
  );
}

const areWhole = (values: ArrayLike<number>) => Array.from(values).every(Number.isInteger);

interface PlotProps {
  data: uPlot.AlignedData;
  label: string;
  options: (width: number) => uPlot.Options;
  recreateKey?: string; // what `options` depends on: the chart is recreated when it changes
  onCreate?: (plot: uPlot) => void;
}

/** A chart as wide as its container; new data are drawn into the same chart. */
export function Plot({ data, label, options, recreateKey, onCreate }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const scheme = useScheme();
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(options(element.clientWidth), data, element);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: made.height }));
    plot.current = made;
    onCreate?.(made);
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [recreateKey, scheme]);
  useEffect(() => {
    if (plot.current && plot.current.data !== data) plot.current.setData(data);
  }, [data]);
  return <div ref={box} class="chart" role="img" aria-label={label} />;
}

/** Points without a line between them. */
export const pointSeries = (label: string, stroke: string, size = 5): uPlot.Series => ({
  label,
  stroke,
  paths: () => null,
  points: { show: true, size, stroke, fill: stroke, width: 0 },
});

/** At most `max` of them, evenly spaced. */
export function thin<T>(all: T[], max: number): T[] {
  if (all.length <= max) return all;
  const step = all.length / max;
  return Array.from({ length: max }, (_, i) => all[Math.floor(i * step)]!);
}

/** The points of one attempt, by step, without what has none; by time since its first report if nothing has a step. */
function attemptTable(curve: Curve, attempt: number, hasSteps: boolean): [number[], (number | null)[]] {
  const own = [...curve.attempt.keys()].filter((i) => curve.attempt[i] === attempt);
  const first = curve.time[own[0]!]!;
  const x = (i: number) => (hasSteps ? curve.step[i]! : (curve.time[i]! - first) / 1000);
  const order = own.filter((i) => x(i) !== null).sort((a, b) => x(a) - x(b));
  return [order.map(x), order.map((i) => curve.value[i] ?? null)];
}

/** A line for each attempt; the last one is drawn last. */
function attemptLines(curve: Curve, hasSteps: boolean): { attempts: number[]; data: uPlot.AlignedData } {
  const all = [...new Set(curve.attempt)].sort((a, b) => a - b);
  const lines = all.map((attempt) => ({ attempt, table: attemptTable(curve, attempt, hasSteps) }));
  const shown = lines.filter(({ table }) => table[0].length > 0);
  const tables = shown.map(({ table }) => table);
  return { attempts: shown.map(({ attempt }) => attempt), data: tables.length > 1 ? uPlot.join(tables) : (tables[0] ?? [[], []]) };
}

/** The reported values of one metric; `log` names those with a logarithmic axis. */
export function CurveChart({ name, curve, log }: { name: string; curve: Curve; log: string | null }) {
  const hasSteps = curve.step.some((s) => s !== null);
  const title = hasSteps ? "step" : "seconds";
  const { attempts, data } = attemptLines(curve, hasSteps);
  const canLog = arePositive(curve.value);
  const isLog = canLog && isToggled(log, name);
  const series = attempts.map((attempt, n): uPlot.Series => {
    const isLast = n === attempts.length - 1;
    const label = attempts.length > 1 ? `${name}, attempt ${attempt}` : name;
    return { label, stroke: color(isLast ? "accent" : "dim"), width: isLast ? 2 : 1 };
  });
  return (
    <section>
      <header class="bar">
        <h2>{name}</h2>
        {canLog && <LogChoice label={`${name} logarithmic`} isLog={isLog} onChange={() => setParams({ ylog: toggled(log, name) })} />}
      </header>
      <Plot
        data={data}
        recreateKey={`${attempts} ${title} ${isLog}`}
        label={`Reported values of ${name}`}
        options={(width) => ({
          width,
          height: 200,
          scales: { x: { time: false }, y: isLog ? logScale : {} },
          axes: [
            { ...axis(), ...(areWhole(data[0]) ? wholeAxis : {}), label: title },
            { ...axis(), ...(isLog ? logAxis : {}), size: 70 },
          ],
          series: [{ label: title }, ...series],
        })}
      />
    </section>
  );
}
