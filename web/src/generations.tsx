// SPDX-License-Identifier: Apache-2.0
// The values of an evolution by generation: each trial as a point, quartiles as a box.
import { useMemo, useRef } from "preact/hooks";
import type uPlot from "uplot";
import { setParams } from "./address";
import type { Run } from "./api";
import { axis, color, logAxis, LogChoice, logScale, Plot, pointSeries, thin, wholeAxis } from "./chart";
import { count } from "./format";
import { pointPlugin } from "./points";
import { canBeLog, isLogAxis, toggled } from "./scale";
import type { Trials } from "./trials";

const POINTS = 5000;

interface Box {
  generation: number;
  quartiles: [number, number, number];
}

function quantile(sorted: number[], q: number): number {
  const at = (sorted.length - 1) * q;
  const i = Math.floor(at);
  return sorted[i]! + (at - i) * ((sorted[i + 1] ?? sorted[i]!) - sorted[i]!);
}

function byGeneration(run: Run, trials: Trials, population: number) {
  const values = trials.column("value", run).numbers;
  const groups = new Map<number, number[]>();
  const points: [number, number, number][] = []; // with the index of the trial
  values.forEach((value, i) => {
    if (Number.isNaN(value)) return;
    const slot = (trials.number(i) - 1) % population;
    const generation = (trials.number(i) - 1 - slot) / population + 1;
    if (!groups.has(generation)) groups.set(generation, []);
    groups.get(generation)!.push(value);
    points.push([generation + ((slot + 0.5) / population - 0.5) * 0.5, value, i]);
  });
  const boxes = [...groups].map(([generation, all]): Box => {
    all.sort((a, b) => a - b);
    return { generation, quartiles: [quantile(all, 0.25), quantile(all, 0.5), quantile(all, 0.75)] };
  });
  const shown = thin(points, POINTS).sort((a, b) => a[0] - b[0]);
  const data: [number[], number[]] = [shown.map((p) => p[0]), shown.map((p) => p[1])];
  return { data, boxes, rows: shown.map((p) => p[2]) };
}

function drawBoxes(u: uPlot, boxes: Box[]): void {
  const { ctx } = u;
  ctx.save();
  ctx.strokeStyle = color("good");
  ctx.lineWidth = 2 * devicePixelRatio;
  for (const { generation, quartiles } of boxes) {
    const [low, middle, high] = quartiles.map((q) => u.valToPos(q, "y", true)) as [number, number, number];
    const left = u.valToPos(generation - 0.35, "x", true);
    const right = u.valToPos(generation + 0.35, "x", true);
    ctx.strokeRect(left, high, right - left, low - high);
    ctx.beginPath();
    ctx.moveTo(left, middle);
    ctx.lineTo(right, middle);
    ctx.stroke();
  }
  ctx.restore();
}

export function Generations({ run, trials, params }: { run: Run; trials: Trials; params: URLSearchParams }) {
  const population = Math.max(run.search?.population ?? 1, 1);
  const { data, boxes, rows } = useMemo(() => byGeneration(run, trials, population), [trials, population]);
  const latest = useRef({ run, trials, rows, boxes });
  latest.current = { run, trials, rows, boxes };
  const value = trials.column("value", run);
  const log = params.get("log");
  const isLog = isLogAxis(run, value, log);
  const last = boxes.reduce((most, b) => Math.max(most, b.generation), 1);
  return (
    <section>
      <header class="bar">
        <h2>{run.metric} by generation</h2>
        {canBeLog(value) && <LogChoice isLog={isLog} onChange={() => setParams({ log: toggled(log, "value") })} />}
      </header>
      <p class="dim">
        A generation has {count(population)} trials. Boxes are quartiles, with the median.
      </p>
      <Plot
        data={data}
        recreateKey={`${last} ${isLog}`}
        label={`${run.metric} by generation`}
        options={(width) => ({
          width,
          height: 360,
          legend: { show: false },
          cursor: { y: false },
          scales: { x: { time: false, range: [0.4, last + 0.6] }, y: isLog ? logScale : {} },
          axes: [
            { ...axis(), ...wholeAxis, label: "generation" },
            { ...axis(), ...(isLog ? logAxis : {}), size: 70 },
          ],
          series: [{}, pointSeries(run.metric ?? "value", color("accent"), 4)],
          hooks: { draw: [(u) => drawBoxes(u, latest.current.boxes)] },
          plugins: [pointPlugin(() => latest.current)],
        })}
      />
    </section>
  );
}
