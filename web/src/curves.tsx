// SPDX-License-Identifier: Apache-2.0
// The reported values of many trials in one chart.
import { useMemo, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { setParams, to } from "./address";
import { type Curves as CurvesReply, getCurves, type Run } from "./api";
import { axis, LogChoice, logAxis, logScale, Plot, useScheme } from "./chart";
import { seriesColor } from "./colors";
import { capital, metric, unitName, unitOf, units } from "./format";
import { useLive } from "./live";
import { Failure } from "./parts";
import { readPicked } from "./selection";

type Line = { trial: number; x: number[]; y: (number | null)[] };

/** By step, without what has none, or by time. A later attempt that begins again replaces what the earlier one has
 *  reported from there on. */
function lineOf(curve: CurvesReply["curves"][number], byStep: boolean): Line {
  const hasSteps = curve.step.some((s) => s !== null);
  const order = byStep || hasSteps ? curve.step : curve.time;
  const kept: number[] = [];
  order.forEach((at, i) => {
    if (at === null) return;
    while (kept.length && order[kept[kept.length - 1]!]! >= at) kept.pop();
    kept.push(i);
  });
  const first = curve.time[kept[0] ?? 0] ?? 0;
  const x = (i: number) => (byStep ? curve.step[i]! : (curve.time[i]! - first) / 1000);
  return { trial: curve.trial, x: kept.map(x), y: kept.map((i) => curve.value[i]!) };
}

/** An exponential moving average; its start is not drawn to zero. */
export function smooth(y: (number | null)[], weight: number): (number | null)[] {
  let mean = 0;
  let mass = 0;
  return y.map((value) => {
    if (value === null) return null;
    mean = weight * mean + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return mean / mass;
  });
}

function aligned(lines: Line[], weight: number, isLog: boolean): uPlot.AlignedData {
  if (lines.length === 0) return [[], []];
  const tables = lines.map((l): uPlot.AlignedData => {
    const y = smooth(l.y, weight);
    return [l.x, isLog ? y.map((v) => (v !== null && v > 0 ? v : null)) : y];
  });
  return uPlot.join(tables);
}

interface LegendProps {
  run: Run;
  lines: Line[];
  values: (number | null | undefined)[];
  scheme: string;
  onFocus: (n: number | null) => void;
}

function Legend({ run, lines, values, scheme, onFocus }: LegendProps) {
  return (
    <ul class="legend">
      {lines.map((l, n) => (
        <li key={l.trial} onMouseEnter={() => onFocus(n)} onMouseLeave={() => onFocus(null)}>
          <span class="swatch" style={{ background: seriesColor(n, scheme) }} />
          <a href={to(`runs/${run.run}/trials/${l.trial}`)}>{capital(unitName(run, l.trial))}</a>
          <span class="dim"> {metric(values[n] ?? l.y[l.y.length - 1])}</span>
        </li>
      ))}
    </ul>
  );
}

export function Curves({ run, params }: { run: Run; params: URLSearchParams }) {
  const scheme = useScheme();
  const picked = readPicked(params).slice(0, 100);
  const usesPicked = picked.length > 0 && params.get("of") !== "best";
  const best = Math.min(100, Math.max(1, Number(params.get("k")) || 10));
  const asked = params.get("metric");
  const byTime = params.get("by") === "time";
  const weight = Math.min(0.99, Math.max(0, Number(params.get("smooth")) || 0));
  const isLog = params.get("ylog") === "1";
  const query: Record<string, string> = usesPicked ? { trials: picked.join(",") } : { best: String(best) };
  if (asked) query.name = asked;
  const key = `curves ${run.run} ${JSON.stringify(query)}`;
  const { value, error } = useLive(key, () => getCurves(String(run.run), query));
  const hasSteps = value?.curves.some((c) => c.step.some((s) => s !== null)) ?? true;
  const lines = useMemo(() => (value?.curves ?? []).map((c) => lineOf(c, hasSteps && !byTime)).filter((l) => l.x.length), [value, hasSteps, byTime]);
  const data = useMemo(() => aligned(lines, weight, isLog), [lines, weight, isLog]);
  const plot = useRef<uPlot | null>(null);
  const [values, setValues] = useState<(number | null | undefined)[]>([]);
  const readCursor = (u: uPlot) => {
    const i = u.cursor.idx;
    setValues(i === null || i === undefined ? [] : u.data.slice(1).map((y) => y[i]));
  };
  const focus = (n: number | null) => plot.current?.setSeries(n === null ? null : n + 1, { focus: n !== null });
  const name = value?.name ?? asked ?? "";
  const title = hasSteps && !byTime ? "step" : "seconds";
  return (
    <section>
      <header class="bar">
        <h2>Reported values</h2>
        <label>
          of{" "}
          <select aria-label="Curves of" value={usesPicked ? "picked" : String(best)} onChange={(e) => setParams(e.currentTarget.value === "picked" ? { of: null, k: null } : { of: "best", k: e.currentTarget.value })}>
            {picked.length > 0 && <option value="picked">the {picked.length} picked {unitOf(run)}s</option>}
            {[...new Set([5, 10, 20, 50, 100, best])].sort((a, b) => a - b).map((k) => (
              <option key={k} value={String(k)}>
                the best {k}
              </option>
            ))}
          </select>
        </label>
        <label>
          Metric{" "}
          <select value={name} onChange={(e) => setParams({ metric: e.currentTarget.value })}>
            {[...new Set([...(value?.names ?? []), ...(name ? [name] : [])])].map((n) => (
              <option key={n}>{n}</option>
            ))}
          </select>
        </label>
        <label>
          by{" "}
          <select aria-label="Horizontal axis" value={byTime ? "time" : "step"} onChange={(e) => setParams({ by: e.currentTarget.value === "time" ? "time" : null })}>
            <option value="step">step</option>
            <option value="time">time</option>
          </select>
        </label>
        <label>
          Smoothing{" "}
          <input
            type="range"
            min="0"
            max="0.99"
            step="0.01"
            value={weight}
            onChange={(e) => setParams({ smooth: Number(e.currentTarget.value) ? e.currentTarget.value : null })}
          />{" "}
          {weight}
        </label>
        <LogChoice isLog={isLog} onChange={(on) => setParams({ ylog: on ? "1" : null })} />
      </header>
      <Failure error={error} />
      {value && lines.length === 0 && (
        <p class="dim">
          These {unitOf(run)}s have not reported any values. Use <code>hopyard report loss=0.3 step=7</code> in a command, or{" "}
          <code>hopyard.report(loss=0.3, step=7)</code> in a function.
        </p>
      )}
      {lines.length > 0 && (
        <Plot
          data={data}
          recreateKey={`${lines.map((l) => l.trial)} ${isLog} ${title} ${name}`}
          label={`${name} of ${units(run, lines.length)}`}
          onCreate={(u) => (plot.current = u)}
          options={(width) => ({
            width,
            height: 420,
            legend: { show: false },
            focus: { alpha: 0.2 },
            cursor: { focus: { prox: 16 } },
            scales: { x: { time: false }, y: isLog ? logScale : {} },
            axes: [
              { ...axis(), label: title },
              { ...axis(), ...(isLog ? logAxis : {}), size: 70 },
            ],
            series: [
              { label: title },
              ...lines.map((l, n) => ({
                label: unitName(run, l.trial),
                stroke: seriesColor(n, scheme),
                width: 1.5,
                spanGaps: true,
                points: { show: l.x.length < 2 },
              })),
            ],
            hooks: { setCursor: [readCursor] },
          })}
        />
      )}
      <Legend run={run} lines={lines} values={values} scheme={scheme} onFocus={focus} />
    </section>
  );
}
