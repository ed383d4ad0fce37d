// SPDX-License-Identifier: Apache-2.0
// The best value so far, over trials or over time.
import { useMemo } from "preact/hooks";
import uPlot from "uplot";
import { setParams } from "./address";
import type { Run } from "./api";
import { arePositive, axis, color, logAxis, LogChoice, logScale, Plot, pointSeries, wholeAxis } from "./chart";
import { sortRows, type Trials } from "./trials";

const POINTS = 5000; // more are not distinguishable

type Line = [number[], (number | null)[], number[]];

/** Values in their order, and the best of all up to each. Of many values, the improvements and some of the others. */
export function bestSoFar(run: Run, trials: Trials, over: string): Line {
  const values = trials.column("value", run).numbers;
  const start = trials.column("start", run).numbers;
  const time = trials.column("time", run).numbers;
  const number = trials.column("number", run);
  const ends = { ...number, numbers: start.map((s, i) => s + time[i]!) };
  const order = over === "time" ? ends : number;
  const rows = Uint32Array.from(values.keys()).filter((i) => !Number.isNaN(values[i]!) && !Number.isNaN(order.numbers[i]!));
  const step = Math.ceil(rows.length / POINTS);
  const line: Line = [[], [], []];
  let best = run.maximize ? -Infinity : Infinity;
  sortRows(rows, order, false).forEach((i, n) => {
    const value = values[i]!;
    const isBetter = run.maximize ? value > best : value < best;
    if (isBetter) best = value;
    if (!isBetter && n % step && n !== rows.length - 1) return;
    line[0].push(order.numbers[i]!);
    line[1].push(value);
    line[2].push(best);
  });
  return line;
}

/** The range of values without the worst ones, which would compress the others into a line. */
function focus(run: Run, values: (number | null)[]): [number, number] | null {
  const sorted = values.filter((v): v is number => v !== null).sort((a, b) => a - b);
  if (sorted.length < 20) return null;
  const low = sorted[run.maximize ? Math.floor(sorted.length * 0.05) : 0]!;
  const high = sorted[run.maximize ? sorted.length - 1 : Math.ceil(sorted.length * 0.95) - 1]!;
  const margin = (high - low) * 0.05;
  return high > low ? [low - margin, high + margin] : null;
}

export function OverChoice({ over }: { over: string }) {
  return (
    <label>
      over{" "}
      <select aria-label="Best so far over" value={over} onChange={(e) => setParams({ over: e.currentTarget.value === "time" ? "time" : null })}>
        <option value="trials">trials</option>
        <option value="time">time</option>
      </select>
    </label>
  );
}

export function History({ run, trials, params }: { run: Run; trials: Trials; params: URLSearchParams }) {
  const over = params.get("over") === "time" ? "time" : "trials";
  const isLog = params.get("ylog") === "1";
  const data = useMemo(() => bestSoFar(run, trials, over), [trials, over, run.maximize]);
  const canLog = arePositive(data[1]);
  const name = run.metric ?? "value";
  const title = over === "time" ? "seconds" : "trial";
  // computed from the current data: the chart is not recreated for new trials
  const range = (u: uPlot, low: number, high: number): [number, number] => focus(run, u.data[1] as Line[1]) ?? [low, high];
  return (
    <section>
      <header class="bar">
        <h2>Best {name} so far</h2>
        <OverChoice over={over} />
        {canLog && <LogChoice isLog={isLog} onChange={(on) => setParams({ ylog: on ? "1" : null })} />}
      </header>
      <Plot
        data={data}
        recreateKey={`${over} ${isLog && canLog} ${data[0].length >= 20}`}
        label={`The best ${name} after each trial`}
        options={(width) => ({
          width,
          height: 280,
          scales: {
            x: { time: false },
            y: isLog && canLog ? logScale : data[0].length >= 20 ? { range } : {},
          },
          axes: [
            { ...axis(), ...(over === "trials" ? wholeAxis : {}), label: title },
            { ...axis(), ...(isLog && canLog ? logAxis : {}), size: 70 },
          ],
          series: [
            { label: title },
            pointSeries(name, color("accent"), data[0].length > 500 ? 3 : 5),
            {
              label: "best so far",
              stroke: color("good"),
              width: 2,
              paths: uPlot.paths.stepped!({ align: 1 }),
              points: { show: false },
            },
          ],
        })}
      />
    </section>
  );
}
