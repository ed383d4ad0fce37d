// SPDX-License-Identifier: Apache-2.0
// Charts, drawn by uPlot.
import { useEffect, useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import type { Columns, Curve, Run } from "./api";
import { value as valueText } from "./format";

/** A color of the style sheet. */
const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The values of trials by number, and the best of all up to each. */
export function bestSoFar(all: Columns, maximize: boolean): [number[], number[], number[]] {
  const numbers: number[] = [];
  const values: number[] = [];
  const best: number[] = [];
  all.value.forEach((value, i) => {
    if (value === null) return;
    const last = best[best.length - 1];
    numbers.push(all.number[i]!);
    values.push(value);
    best.push(last === undefined ? value : maximize ? Math.max(last, value) : Math.min(last, value));
  });
  return [numbers, values, best];
}

/** Values against one hyperparameter, by its size, or by its place in the order of its texts. */
export function against(all: Columns, name: string): { data: [number[], number[]]; texts: string[] | null } {
  const column = all.params[name] ?? [];
  const isNumber = column.every((x) => x === null || typeof x === "number");
  const texts = isNumber ? null : [...new Set(column.map(valueText))].sort();
  const points = all.value
    .map((y, i): [number | null, number | null] => {
      const x = column[i];
      return [x === null || x === undefined ? null : texts ? texts.indexOf(valueText(x)) : (x as number), y];
    })
    .filter((p): p is [number, number] => p[0] !== null && p[1] !== null)
    .sort((a, b) => a[0] - b[0]);
  return { data: [points.map((p) => p[0]), points.map((p) => p[1])], texts };
}

const axis = () => ({
  stroke: color("text"),
  grid: { stroke: color("line"), width: 1 },
  ticks: { stroke: color("line"), width: 1 },
});

interface PlotProps {
  data: uPlot.AlignedData;
  label: string;
  options: (width: number) => uPlot.Options;
}

/** A chart as wide as its place; new data are drawn into the same one. */
function Plot({ data, label, options }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const made = new uPlot(options(element.clientWidth), data, element);
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: made.height }));
    plot.current = made;
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data), [data]);
  return <div ref={box} class="chart" role="img" aria-label={label} />;
}

/** The reported values of one metric, by step where all have one, otherwise by time. */
export function CurveChart({ name, curve }: { name: string; curve: Curve }) {
  const hasSteps = curve.step.every((s) => s !== null);
  const first = curve.time[0] ?? 0;
  const x = hasSteps ? (curve.step as number[]) : curve.time.map((t) => (t - first) / 1000);
  const order = x.map((_, i) => i).sort((a, b) => x[a]! - x[b]!);
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
            { ...axis(), label: hasSteps ? "step" : "seconds" },
            { ...axis(), size: 70 },
          ],
          series: [{ label: hasSteps ? "step" : "seconds" }, { label: name, stroke: color("accent"), width: 2 }],
        })}
      />
    </section>
  );
}

/** The metric of all trials against one hyperparameter. `isLog`: the parameter on a logarithmic axis. */
export function AgainstParameter({ run, all, name, isLog }: { run: Run; all: Columns; name: string; isLog: boolean }) {
  const { data, texts } = useMemo(() => against(all, name), [all, name]);
  const label = texts ? (_: uPlot, at: number[]) => at.map((i) => texts[i] ?? "") : undefined;
  return (
    <Plot
      key={`${name} ${isLog}`}
      data={data}
      label={`${run.metric} against ${name}`}
      options={(width) => ({
        width,
        height: 260,
        scales: { x: { time: false, distr: isLog && !texts ? 3 : 1 } },
        axes: [
          { ...axis(), label: name, values: label },
          { ...axis(), label: run.metric ?? "", size: 70 },
        ],
        series: [
          { label: name },
          {
            label: run.metric ?? "value",
            stroke: color("accent"),
            paths: () => null,
            points: { show: true, size: 5, fill: color("accent") },
          },
        ],
      })}
    />
  );
}

export function BestSoFar({ run, all }: { run: Run; all: Columns }) {
  const data = useMemo(() => bestSoFar(all, run.maximize), [all, run.maximize]);
  const points = { show: true, size: 5, fill: color("accent") };
  return (
    <section>
      <h2>Best {run.metric} so far</h2>
      <Plot
        data={data}
        label={`The best ${run.metric} after each trial`}
        options={(width) => ({
          width,
          height: 260,
          scales: { x: { time: false } },
          axes: [
            { ...axis(), label: "trial" },
            { ...axis(), label: run.metric ?? "", size: 70 },
          ],
          series: [
            { label: "trial" },
            { label: run.metric ?? "value", stroke: color("accent"), paths: () => null, points },
            { label: "best so far", stroke: color("good"), width: 2, points: { show: false } },
          ],
        })}
      />
    </section>
  );
}
