// SPDX-License-Identifier: Apache-2.0
// Charts, drawn by uPlot.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { Curve } from "./api";
import { metric } from "./format";
import { logTicks } from "./scale";

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
export const logScale: uPlot.Scale = { distr: 3, range: (_, low, high) => [low / 1.1, high * 1.1] };
export const logAxis: uPlot.Axis = {
  splits: (_, __, low, high) => logTicks(low, high),
  filter: (_, ticks) => ticks,
  values: (_, ticks) => ticks.map((x) => metric(x)),
};

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

/** The reported values of one metric, by step, without what has none; by time if nothing has a step. */
export function CurveChart({ name, curve }: { name: string; curve: Curve }) {
  const hasSteps = curve.step.some((s) => s !== null);
  const title = hasSteps ? "step" : "seconds";
  const first = curve.time[0] ?? 0;
  const x = hasSteps ? curve.step : curve.time.map((t) => (t - first) / 1000);
  const order = [...x.keys()].filter((i) => x[i] !== null).sort((a, b) => x[a]! - x[b]!);
  const data: uPlot.AlignedData = [order.map((i) => x[i]!), order.map((i) => curve.value[i] ?? null)];
  return (
    <section>
      <h2>{name}</h2>
      <Plot
        data={data}
        label={`Reported values of ${name}`}
        options={(width) => ({
          width,
          height: 200,
          scales: { x: { time: false } },
          axes: [
            { ...axis(), label: title },
            { ...axis(), size: 70 },
          ],
          series: [{ label: title }, { label: name, stroke: color("accent"), width: 2 }],
        })}
      />
    </section>
  );
}
