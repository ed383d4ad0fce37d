// SPDX-License-Identifier: Apache-2.0
// Several runs: the best value so far of each, and their differences.
import type { ComponentChildren } from "preact";
import { useMemo, useRef } from "preact/hooks";
import uPlot from "uplot";
import { setParams, to, useAddress } from "./address";
import { type Dimension, getRun, Refused, type Run } from "./api";
import { arePositive, axis, logAxis, LogChoice, logScale, Plot, useScheme, wholeAxis } from "./chart";
import { seriesColor } from "./colors";
import { command, count, duration, kindOf, metric, unitName, value as valueText } from "./format";
import { bestSoFar, OverChoice } from "./history";
import { type Live, needsLogin, useLive } from "./live";
import { Failure, Scroll, State, useTitle } from "./parts";
import { isToggled, toggled } from "./scale";
import { paceTrials, Trials, update } from "./trials";

const RUNS = 12;

interface Compared {
  run: Run;
  trials: Trials;
}

/** A run that cannot be shown: it has been deleted, for example. */
interface Missing {
  id: string;
  error: Error;
}

const nameOf = (run: Run) => `Run ${run.run}${run.name ? ` ${run.name}` : ""}`;

function elapsed(run: Run): string {
  return duration((run.ended ? Date.parse(run.ended) : Date.now()) - Date.parse(run.created));
}

interface ChartProps {
  all: Compared[];
  name: string;
  over: string;
  log: string | null; // the metrics with a logarithmic axis
  children?: ComponentChildren;
}

/** The best of each over its trials, or over time. */
function Chart({ all, name, over, log, children }: ChartProps) {
  const scheme = useScheme();
  const data = useMemo(
    () =>
      uPlot.join(
        all.map(({ run, trials }): uPlot.AlignedData => {
          const [x, , best] = bestSoFar(run, trials, over);
          return [x, best];
        }),
      ),
    [all, over],
  );
  const canLog = useMemo(() => data.slice(1).every((values) => arePositive(values)), [data]);
  const isLog = canLog && isToggled(log, name);
  return (
    <section>
      <header class="bar">
        <h2>Best {name} so far</h2>
        {children}
        {canLog && <LogChoice label={`${name} logarithmic`} isLog={isLog} onChange={() => setParams({ ylog: toggled(log, name) })} />}
      </header>
      <Plot
        data={data}
        recreateKey={`${all.map(({ run }) => run.run)} ${over} ${isLog}`}
        label={`The best ${name} so far of ${all.length} runs`}
        options={(width) => ({
          width,
          height: 340,
          scales: { x: { time: false }, y: isLog ? logScale : {} },
          axes: [
            { ...axis(), ...(over === "trials" ? wholeAxis : {}), label: over === "time" ? "seconds" : "trial" },
            { ...axis(), ...(isLog ? logAxis : {}), size: 70 },
          ],
          series: [
            { label: over === "time" ? "seconds" : "trial" },
            ...all.map(({ run }, n) => ({
              label: nameOf(run),
              stroke: seriesColor(n, scheme),
              width: 2,
              spanGaps: true,
              paths: uPlot.paths.stepped!({ align: 1 }),
              points: { show: false },
            })),
          ],
        })}
      />
    </section>
  );
}

const CHOICES = 12; // of a list, in a cell

function rangeText(dim: Dimension): string {
  const isBounded = dim.low !== null || dim.high !== null;
  const bounds = `${metric(dim.low)} … ${metric(dim.high)}`;
  const step = dim.step === null ? "" : ` step ${metric(dim.step)}`;
  if (dim.mean === null) return `${dim.log ? "log " : ""}${bounds}${step}`;
  return `${dim.log ? "lognormal" : "normal"} (${metric(dim.mean)}, ${metric(dim.deviation)})${isBounded ? ` in ${bounds}` : ""}${step}`;
}

function choicesText(dim: Dimension): string {
  const shown = dim.choices.slice(0, CHOICES);
  return shown.join(", ") + (dim.choice_count > shown.length ? `, … (${count(dim.choice_count)})` : "");
}

function spaceText(run: Run, name: string): string {
  const dim = run.search?.space.find((d) => d.name === name);
  if (!dim) return "";
  return `${dim.kind === "category" ? choicesText(dim) : rangeText(dim)}${dim.condition === null ? "" : ` if ${dim.condition}`}`;
}

/** What is compared: a title, and the text of each run. */
function facts(all: Compared[]): [string, string[]][] {
  const each = (text: (c: Compared) => string) => all.map(text);
  const versions = [...new Set(all.flatMap(({ run }) => Object.keys(run.versions ?? {})))];
  const dims = [...new Set(all.flatMap(({ run }) => run.search?.space.map((d) => d.name) ?? []))];
  const params = [...new Set(all.flatMap(({ trials }) => trials.paramNames))];
  const best = ({ run, trials }: Compared, name: string) => {
    const i = run.best_trial ? trials.find(run.best_trial) : -1;
    const x = i < 0 ? null : trials.param(name, i);
    return x === null ? "" : valueText(x);
  };
  return [
    ["Command", each(({ run }) => command(run.command))],
    ["Metric", each(({ run }) => (run.metric ? `${run.maximize ? "max" : "min"} ${run.metric}` : ""))],
    ["Kind", each(({ run }) => kindOf(run))],
    ["Population", each(({ run }) => String(run.search?.population || ""))],
    ...dims.map((name): [string, string[]] => [`Space of ${name}`, each(({ run }) => spaceText(run, name))]),
    ...params.map((name): [string, string[]] => [`Best ${name}`, each((c) => best(c, name))]),
    ["Ranks or nodes", each(({ run }) => String(run.ranks ?? ""))],
    ["Seed", each(({ run }) => String(run.seed))],
    ["Commit", each(({ run }) => run.git ?? "")],
    ...versions.map((name): [string, string[]] => [name, each(({ run }) => run.versions?.[name] ?? "")]),
  ];
}

function Table({ all, onlyDifferent }: { all: Compared[]; onlyDifferent: boolean }) {
  const rows = facts(all).filter(([, texts]) => (onlyDifferent ? new Set(texts).size > 1 : texts.some(Boolean)));
  return (
    <Scroll label="Runs side by side">
      <table class="sides">
        <thead>
          <tr>
            <td />
            {all.map(({ run }) => (
              <th key={run.run} scope="col">
                <a href={to(`runs/${run.run}`)}>{nameOf(run)}</a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">State</th>
            {all.map(({ run }) => (
              <td key={run.run}>
                <State state={run.state} />
              </td>
            ))}
          </tr>
          <tr>
            <th scope="row">Best</th>
            {all.map(({ run }) => (
              <td key={run.run}>{run.best_trial ? `${run.metric}=${metric(run.best_value)} in ${unitName(run, run.best_trial)}` : ""}</td>
            ))}
          </tr>
          <tr>
            <th scope="row">Trials</th>
            {all.map(({ run }) => (
              <td key={run.run}>{count(run.done + run.failed + run.stopped + run.pruned)}</td>
            ))}
          </tr>
          <tr>
            <th scope="row">Time</th>
            {all.map(({ run }) => (
              <td key={run.run}>{elapsed(run)}</td>
            ))}
          </tr>
          {rows.map(([title, texts]) => (
            <tr key={title} class={new Set(texts).size > 1 ? "differs" : ""}>
              <th scope="row">{title}</th>
              {texts.map((text, n) => (
                <td key={n} class="wrap">
                  {text}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** A run as it is now; its trials are requested only if it has changed. */
async function load(id: string, old?: Compared | Missing): Promise<Compared | Missing> {
  const known = old && "run" in old ? old : undefined;
  try {
    const run = await getRun(id);
    if (known && JSON.stringify(known.run) === JSON.stringify(run)) return known;
    return { run, trials: await update(id, known?.trials ?? Trials.none) };
  } catch (error) {
    if (error instanceof Refused && !needsLogin(error)) return { id, error };
    throw error;
  }
}

/** The requested runs, kept up to date; the same list until one of them changes. */
function useRuns(ids: string[]): Live<(Compared | Missing)[]> {
  const key = `compare ${ids}`;
  const known = useRef<{ key: string; all: (Compared | Missing)[] }>({ key, all: [] });
  const last = useRef(0);
  return useLive(key, async () => {
    if (known.current.key !== key) known.current = { key, all: [] };
    const mine = known.current;
    await paceTrials(mine.all.reduce((sum, c) => sum + ("run" in c ? c.trials.count : 0), 0), last);
    const next = await Promise.all(ids.map((id, n) => load(id, mine.all[n])));
    if (next.some((c, n) => c !== mine.all[n])) mine.all = next;
    return mine.all;
  });
}

function LeftOut({ ids }: { ids: string[] }) {
  if (ids.length === 0) return null;
  return (
    <p>
      At most {RUNS} runs are compared: {ids.length === 1 ? `run ${ids[0]} is` : `runs ${ids.join(", ")} are`} left out.
    </p>
  );
}

export function Compare() {
  useTitle("Compare runs");
  const { params } = useAddress();
  const asked = [...new Set((params.get("runs") ?? "").split(",").filter(Boolean))];
  const ids = asked.slice(0, RUNS);
  const over = params.get("over") === "time" ? "time" : "trials";
  const onlyDifferent = params.get("same") !== "1";
  const { value, error } = useRuns(ids);
  const shown = useMemo(() => (value ?? []).filter((c): c is Compared => "run" in c), [value]);
  const missing = (value ?? []).filter((c): c is Missing => "error" in c);
  const metrics = [...new Set(shown.map(({ run }) => run.metric).filter((m): m is string => m !== null))];
  const groups = useMemo(() => metrics.map((m) => shown.filter(({ run }) => run.metric === m)), [shown]);
  return (
    <main>
      <h1>Compare runs</h1>
      <Failure error={error} />
      {missing.map((m) => (
        <Failure key={m.id} error={m.error} />
      ))}
      <LeftOut ids={asked.slice(RUNS)} />
      {ids.length === 0 && <p>No runs are chosen: choose some with the check boxes in the list of runs.</p>}
      {metrics.map((name, n) => (
        <Chart key={name} all={groups[n]!} name={name} over={over} log={params.get("ylog")}>
          {n === 0 && <OverChoice over={over} />}
        </Chart>
      ))}
      {shown.length > 0 && (
        <section>
          <header class="bar">
            <h2>Side by side</h2>
            <label>
              <input type="checkbox" checked={onlyDifferent} onChange={(e) => setParams({ same: e.currentTarget.checked ? null : "1" })} />{" "}
              only differences
            </label>
          </header>
          <Table all={shown} onlyDifferent={onlyDifferent} />
        </section>
      )}
    </main>
  );
}
