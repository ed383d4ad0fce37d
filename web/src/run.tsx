// SPDX-License-Identifier: Apache-2.0
// One run: what it is, and views of its trials.
import type { ComponentChildren } from "preact";
import { useEffect, useMemo, useState } from "preact/hooks";
import { setParams, to, useAddress } from "./address";
import { getProjects, getRun, type Run as RunRow } from "./api";
import { Contour } from "./contour";
import { Curves } from "./curves";
import { Difference } from "./difference";
import { encodePath } from "./file_api";
import { Filters } from "./filters";
import { capital, command, count, duration, metric, unitName, unitOf } from "./format";
import { Generations } from "./generations";
import { History } from "./history";
import { Importance } from "./importance";
import { Tags } from "./labels";
import { useLive } from "./live";
import { Parallel } from "./parallel";
import { Copy, Fact, Failure, Progress, State, useNow, useTitle } from "./parts";
import "./run.css";
import { RunActions } from "./run_actions";
import { Scatter } from "./scatter";
import { readPicked, readSelection, type Selection, selectRows } from "./selection";
import { Timeline } from "./timeline";
import { TrialTable } from "./trial_table";
import { type Trials, useTrials } from "./trials";

/** Notices of hopyard about a run: no metric, a lost machine… The newest last. */
function NoticeList({ notes }: { notes: NonNullable<RunRow["notes"]> }) {
  const shown = notes.slice(-NOTICES);
  return (
    <ul class="notices">
      {shown.length < notes.length && <li class="dim">{count(notes.length - shown.length)} earlier ones: hopyard show</li>}
      {shown.map((n) => (
        <li key={n.seq}>{n.text}</li>
      ))}
    </ul>
  );
}

/** Where the trials write; with a link if that is in the project. */
function LogsPath({ path }: { path: string }) {
  const { project } = useAddress();
  const { value } = useLive("projects", getProjects);
  const root = value?.projects.find((p) => (p.is_own ? project === null : p.id === project))?.path;
  const names = root && path.startsWith(`${root}/`) ? path.slice(root.length + 1).split("/") : null;
  return (
    <span class="bar">
      <Copy text={path} />
      {names && <a href={to(`files/${encodePath(names)}`)}>Files</a>}
    </span>
  );
}

function Facts({ run }: { run: RunRow }) {
  const now = useNow();
  const versions = Object.entries(run.versions ?? {})
    .map(([name, version]) => `${name} ${version}`)
    .join(", ");
  return (
    <dl class="facts">
      <Fact name="Command">
        <code>{command(run.command)}</code>
      </Fact>
      <Fact name={capital(`${unitOf(run)}s`)}>
        <Progress run={run} />
      </Fact>
      <Fact name="Best">{run.best_trial && `${run.metric}=${metric(run.best_value)} in ${unitName(run, run.best_trial)}`}</Fact>
      <Fact name="Time">
        {duration((run.ended ? Date.parse(run.ended) : now) - Date.parse(run.created))}, started{" "}
        {new Date(run.created).toLocaleString()}
      </Fact>
      <Fact name="Note">{run.note && <span class="note">{run.note}</span>}</Fact>
      <Fact name="Message">{run.message}</Fact>
      <Fact name="Notices">{run.notes && run.notes.length > 0 && <NoticeList notes={run.notes} />}</Fact>
      <Fact name="Logs">{run.logdir && <LogsPath path={run.logdir} />}</Fact>
      <Fact name="Commit">{run.git}</Fact>
      <Fact name="Seed">{String(run.seed)}</Fact>
      <Fact name="Versions">{versions}</Fact>
    </dl>
  );
}

const NOTICES = 10;

interface View {
  run: RunRow;
  trials: Trials;
  rows: Uint32Array; // those that the selection has
  selection: Selection;
  params: URLSearchParams;
}

const hasValues = (run: RunRow, trials: Trials) => run.best_trial !== null && trials.count > 0;
const filters = (v: View) => <Filters run={v.run} trials={v.trials} selection={v.selection} shown={v.rows.length} />;

/** Charts of 100,000 trials take longer than a table of them: the first one is drawn without waiting for them. */
function Charts({ class: name, children }: { class: string; children: ComponentChildren }) {
  const [isDue, setDue] = useState(false);
  useEffect(() => {
    // The second frame begins when the first one, with the table, is on the screen.
    let frame = requestAnimationFrame(() => (frame = requestAnimationFrame(() => setDue(true))));
    return () => cancelAnimationFrame(frame);
  }, []);
  return <div class={isDue ? name : `${name} due`}>{isDue && children}</div>;
}

function Overview(v: View) {
  const { run, trials, rows, params } = v;
  return (
    <>
      <Facts run={run} />
      {run.metric !== null && run.best_trial === null && trials.count > 0 && (
        <p class="dim">
          No {unitOf(run)} has a value of {run.metric} yet.
        </p>
      )}
      {hasValues(run, trials) && (
        <Charts class="halves">
          <History run={run} trials={trials} params={params} />
          <Importance run={String(run.run)} />
        </Charts>
      )}
      {filters(v)}
      {hasValues(run, trials) && (
        <Charts class="scatters">
          <Scatter run={run} trials={trials} rows={rows} params={params} />
        </Charts>
      )}
      <TrialTable run={run} trials={trials} rows={rows} />
    </>
  );
}

interface Tab {
  key: string;
  title: string;
  isShown: (run: RunRow, trials: Trials) => boolean;
  show: (v: View) => ComponentChildren;
}

/** The views of a run, in their order. */
const TABS: Tab[] = [
  { key: "overview", title: "Overview", isShown: () => true, show: (v) => <Overview {...v} /> },
  {
    key: "trials",
    title: "Trials",
    isShown: () => true,
    show: (v) => (
      <>
        {filters(v)}
        <TrialTable run={v.run} trials={v.trials} rows={v.rows} tall />
      </>
    ),
  },
  {
    key: "parallel",
    title: "Parallel",
    isShown: (run) => !run.ranks,
    show: (v) => (
      <>
        {filters(v)}
        <Parallel run={v.run} trials={v.trials} rows={v.rows} brushes={v.selection.brushes} params={v.params} />
        <TrialTable run={v.run} trials={v.trials} rows={v.rows} />
      </>
    ),
  },
  {
    key: "contour",
    title: "Contour",
    isShown: (run, trials) => run.metric !== null && trials.paramNames.length > 1,
    show: (v) => (
      <>
        {filters(v)}
        <Contour run={v.run} trials={v.trials} rows={v.rows} params={v.params} />
      </>
    ),
  },
  { key: "curves", title: "Curves", isShown: () => true, show: (v) => <Curves run={v.run} params={v.params} /> },
  {
    key: "generations",
    title: "Generations",
    isShown: (run) => run.metric !== null && (run.search?.population ?? 0) > 0,
    show: (v) => <Generations run={v.run} trials={v.trials} params={v.params} />,
  },
  { key: "timeline", title: "Timeline", isShown: () => true, show: (v) => <Timeline run={v.run} /> },
  {
    key: "compare",
    title: "Compare",
    isShown: () => true,
    show: (v) => <Difference run={v.run} trials={v.trials} params={v.params} />,
  },
];

function TabList({ tabs, current, picked, unit }: { tabs: Tab[]; current: Tab; picked: number; unit: string }) {
  useEffect(() => {
    document.getElementById(`tab-${current.key}`)?.scrollIntoView({ block: "nearest", inline: "nearest" }); // on a phone
  }, [current.key]);
  const move = (e: KeyboardEvent) => {
    const by = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
    if (!by) return;
    const next = tabs[(tabs.indexOf(current) + by + tabs.length) % tabs.length]!;
    setParams({ tab: next.key });
    document.getElementById(`tab-${next.key}`)?.focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label="Views of the run" onKeyDown={move}>
      {tabs.map((tab) => (
        <button
          key={tab.key}
          id={`tab-${tab.key}`}
          role="tab"
          aria-selected={tab === current}
          aria-controls="view"
          tabIndex={tab === current ? 0 : -1}
          onClick={() => setParams({ tab: tab.key === "overview" ? null : tab.key })}
        >
          {tab.key === "trials" ? capital(`${unit}s`) : tab.title}
          {tab.key === "compare" && picked > 0 && ` (${picked})`}
        </button>
      ))}
    </div>
  );
}

function Views({ run, trials, params }: { run: RunRow; trials: Trials; params: URLSearchParams }) {
  const tabs = TABS.filter((tab) => tab.isShown(run, trials));
  const current = tabs.find((tab) => tab.key === params.get("tab")) ?? tabs[0]!;
  const chosen = [params.get("filter"), params.get("best"), params.get("brush")].join("\n");
  const selection = useMemo(() => readSelection(params), [chosen]);
  const rows = useMemo(() => selectRows(trials, run, selection), [trials, selection, run.metric, run.maximize]);
  return (
    <>
      <TabList tabs={tabs} current={current} picked={readPicked(params).length} unit={unitOf(run)} />
      <div id="view" role="tabpanel" aria-labelledby={`tab-${current.key}`}>
        {current.show({ run, trials, rows, selection, params })}
      </div>
    </>
  );
}

export function Run({ id }: { id: string }) {
  const { params } = useAddress();
  const run = useLive(`run ${id}`, () => getRun(id));
  const trials = useTrials(id);
  const r = run.value;
  useTitle(`Run ${r?.run ?? id}${r?.name ? ` ${r.name}` : ""}`);
  const labels = JSON.stringify(r?.trial_labels ?? {}); // the run is read at every change, its labels change rarely
  const labeled = useMemo(() => trials.value?.labeled(JSON.parse(labels)), [trials.value, labels]);
  return (
    <main class="run">
      <header class="bar">
        <h1>
          Run {r?.run ?? id} {r?.name}
        </h1>
        {r && <State state={r.state} />}
        {r && <Tags tags={r.tags} />}
        {r && <RunActions run={r} />}
        {r && <a href={to(`tensorboard?runs=${r.run}`)}>TensorBoard</a>}
      </header>
      <Failure error={run.error ?? trials.error} />
      {r && labeled && <Views run={r} trials={labeled} params={params} />}
      {r && !labeled && !trials.error && <Facts run={r} />}
    </main>
  );
}
