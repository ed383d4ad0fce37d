// SPDX-License-Identifier: Apache-2.0
// JupyterLab for one of three modes: a form, the servers that run, and the server that is open.
import { useEffect, useState } from "preact/hooks";
import { currentProject, setParams, to, useAddress } from "./address";
import { request } from "./api";
import { AppFrame, AppLinks, type AppRow, endApp, getApp, getApps, useApp } from "./apps";
import { command } from "./format";
import "./jupyter.css";
import { Failure, State, useTitle } from "./parts";

type Mode = "experiments" | "tfonspark" | "allreduce";

const MODES: [Mode, string, string][] = [
  ["experiments", "Parallel experiments", "Many trainings at a time, each with its own hyperparameters"],
  ["tfonspark", "TensorFlowOnSpark", "One training on parameter servers and workers, fed by Spark"],
  ["allreduce", "Allreduce", "One training on many workers that average gradients, with Horovod's API"],
];

/** A field with a whole number; empty: as configured. Its name is that of the option of `hopyard notebook`. */
interface Field {
  name: string;
  title: string;
  least: number;
  most: number;
  modes: Mode[];
  hint: Partial<Record<Mode, string>>;
}

const ALL: Mode[] = ["experiments", "tfonspark", "allreduce"];
const FIELDS: Field[] = [
  {
    name: "executors",
    title: "Number of executors",
    least: 1,
    most: 10_000,
    modes: ALL,
    hint: {
      experiments: "util.num_executors(); on a cluster, trials run on them",
      tfonspark: "Nodes of the training: parameter servers and workers",
      allreduce: "Ranks of the training",
    },
  },
  {
    name: "parallel",
    title: "Max parallel executions",
    least: 1,
    most: 1 << 20,
    modes: ["experiments"],
    hint: { experiments: "Trials at a time; empty: one per executor or core" },
  },
  {
    name: "parameter-servers",
    title: "Number of parameter servers",
    least: 0,
    most: 9_999,
    modes: ["tfonspark"],
    hint: { tfonspark: "How many of the executors; the others are workers" },
  },
  {
    name: "executor-memory",
    title: "Executor memory (MB)",
    least: 1,
    most: 2 ** 32 - 1,
    modes: ALL,
    hint: {
      experiments: "A trial that uses more is killed; empty: no limit",
      tfonspark: "A node that uses more is killed; empty: no limit",
      allreduce: "A rank that uses more is killed; empty: no limit",
    },
  },
  {
    name: "executor-gpus",
    title: "Executor GPUs",
    least: 0,
    most: 64,
    modes: ALL,
    hint: {
      experiments: "GPUs for each trial; 0 hides them, empty: none are assigned",
      tfonspark: "GPUs for each node; 0 hides them, empty: none are assigned",
      allreduce: "GPUs for each rank; 0 hides them, empty: none are assigned",
    },
  },
];

// ---- the form's values --------------------------------------------------------------------------

interface Values {
  mode: Mode;
  engine: string; // "local", "yarn", "spark"
  master: string; // of the engine "spark"
  numbers: Record<string, string>;
}

const DEFAULTS: Values = {
  mode: "experiments",
  engine: "local",
  master: "",
  numbers: { executors: "2", "parameter-servers": "1" },
};

const storageKey = () => `jupyter ${currentProject() ?? ""}`;

/** The last values of this project. Invalid stored values are ignored. */
function remembered(): Values {
  try {
    const stored = JSON.parse(localStorage.getItem(storageKey()) ?? "{}");
    const numbers = Object.fromEntries(Object.entries(stored.numbers ?? DEFAULTS.numbers).filter(([, v]) => typeof v === "string"));
    return {
      mode: ALL.includes(stored.mode) ? stored.mode : DEFAULTS.mode,
      engine: ["local", "yarn", "spark"].includes(stored.engine) ? stored.engine : DEFAULTS.engine,
      master: typeof stored.master === "string" ? stored.master : "",
      numbers: numbers as Record<string, string>,
    };
  } catch {
    return DEFAULTS;
  }
}

/** The error message of a field; "": it is valid. */
function problem(field: Field, values: Values): string {
  const text = (values.numbers[field.name] ?? "").trim();
  if (text === "") return "";
  const number = Number(text);
  if (!/^[0-9]+$/.test(text) || number < field.least || number > field.most)
    return `Must be a whole number from ${field.least} to ${field.most.toLocaleString("en-US")}.`;
  const executors = Number(values.numbers.executors || 1);
  if (field.name === "parameter-servers" && number >= executors)
    return `Must be less than the number of executors (${executors}): the others are workers.`;
  return "";
}

const masterProblem = (v: Values) =>
  v.engine === "spark" && !/^(spark|k8s):\/\/\S+$/.test(v.master.trim())
    ? "Must be an address such as spark://host:7077."
    : "";

/** The options of `hopyard notebook`. */
function options(v: Values): [string, string][] {
  const numbers = FIELDS.filter((f) => f.modes.includes(v.mode)).map((f): [string, string] => [
    f.name,
    (v.numbers[f.name] ?? "").trim(),
  ]);
  const engine = v.engine === "spark" ? v.master.trim() : v.engine;
  return [["mode", v.mode] as [string, string], ["engine", engine] as [string, string], ...numbers].filter(([, value]) => value);
}

const startJupyter = (v: Values) =>
  request<AppRow>(`/apps/jupyter?${new URLSearchParams(options(v))}`, { method: "POST" });

// ---- the form -----------------------------------------------------------------------------------

function Labeled({ id, title, hint, wrong, children }: {
  id: string;
  title: string;
  hint: string;
  wrong: string;
  children: preact.ComponentChildren;
}) {
  return (
    <div class="field">
      <label for={id}>{title}</label>
      {children}
      <span id={`${id}-hint`} class={wrong ? "bad" : "dim"} role={wrong ? "alert" : undefined}>
        {wrong || hint}
      </span>
    </div>
  );
}

function Engine({ values, change }: { values: Values; change: (v: Partial<Values>) => void }) {
  const wrong = values.master ? masterProblem(values) : "";
  return (
    <>
      <Labeled id="engine" title="Engine" hint="Where trainings run" wrong="">
        <select
          id="engine"
          value={values.engine}
          aria-describedby="engine-hint"
          onChange={(e) => change({ engine: e.currentTarget.value })}
        >
          <option value="local">This machine</option>
          <option value="yarn">YARN</option>
          <option value="spark">Spark cluster</option>
        </select>
      </Labeled>
      {values.engine === "spark" && (
        <Labeled id="master" title="Master address" hint="spark://host:7077" wrong={wrong}>
          <input
            id="master"
            value={values.master}
            spellcheck={false}
            aria-describedby="master-hint"
            aria-invalid={wrong !== ""}
            onInput={(e) => change({ master: e.currentTarget.value })}
          />
        </Labeled>
      )}
    </>
  );
}

function NumberField({ field, values, change }: { field: Field; values: Values; change: (v: Partial<Values>) => void }) {
  const wrong = problem(field, values);
  return (
    <Labeled id={field.name} title={field.title} hint={field.hint[values.mode] ?? ""} wrong={wrong}>
      <input
        id={field.name}
        inputMode="numeric"
        autocomplete="off"
        value={values.numbers[field.name] ?? ""}
        aria-describedby={`${field.name}-hint`}
        aria-invalid={wrong !== ""}
        onInput={(e) => change({ numbers: { ...values.numbers, [field.name]: e.currentTarget.value } })}
      />
    </Labeled>
  );
}

function Form() {
  const [values, setValues] = useState(remembered);
  const [isStarting, setStarting] = useState(false);
  const [error, setError] = useState<Error>();
  const shown = FIELDS.filter((f) => f.modes.includes(values.mode));
  const isWrong = masterProblem(values) !== "" || shown.some((f) => problem(f, values) !== "");
  const change = (some: Partial<Values>) => setValues((old) => ({ ...old, ...some }));
  const start = async (event: Event) => {
    event.preventDefault();
    if (isWrong || isStarting) return;
    setStarting(true);
    setError(undefined);
    try {
      localStorage.setItem(storageKey(), JSON.stringify(values));
      const app = await startJupyter(values);
      setParams({ app: String(app.id) });
    } catch (refused) {
      setError(refused as Error);
      setStarting(false);
    }
  };
  return (
    <form class="jupyter" onSubmit={start} noValidate>
      <fieldset class="modes">
        <legend>Mode</legend>
        {MODES.map(([mode, title, what]) => (
          <label key={mode}>
            <input type="radio" name="mode" checked={values.mode === mode} onChange={() => change({ mode })} />
            <span>
              <b>{title}</b>
              <span class="dim">{what}</span>
            </span>
          </label>
        ))}
      </fieldset>
      <div class="fields">
        <Engine values={values} change={change} />
        {shown.map((field) => (
          <NumberField key={field.name} field={field} values={values} change={change} />
        ))}
      </div>
      <Failure error={error} />
      <div class="bar">
        <button class="primary" type="submit" disabled={isWrong || isStarting}>
          Start JupyterLab
        </button>
        <span class="dim">
          or in a terminal: <code>{command(["hopyard", "notebook", ...options(values).flatMap(([n, v]) => [`--${n}`, v])])}</code>
        </span>
      </div>
    </form>
  );
}

// ---- servers ------------------------------------------------------------------------------------

const POLL_MS = 2000;

const titleOf = (app: AppRow) => MODES.find(([mode]) => mode === settings(app).mode)?.[1] ?? "JupyterLab";
const settings = (app: AppRow) => (app.details ?? {}) as Record<string, string>;

/** "on yarn, 4 executors, …" */
function summary(app: AppRow): string {
  const of = settings(app);
  const engine = !of.engine || of.engine === "local" ? "this machine" : of.engine;
  const numbers = FIELDS.filter((f) => of[f.name]).map((f) => `${f.title.toLowerCase().replace("number of ", "")} ${of[f.name]}`);
  return [engine, ...numbers].join(", ").replaceAll("gpus", "GPUs").replaceAll("(mb)", "(MB)");
}

function Stop({ app, onError }: { app: AppRow; onError: (error: Error) => void }) {
  const [asks, setAsks] = useState(false);
  const stop = () => {
    setAsks(false);
    endApp(app.id)
      .then(() => setParams({ app: null }))
      .catch(onError);
  };
  if (!asks) return <button onClick={() => setAsks(true)}>Stop…</button>;
  return (
    <span class="actions">
      Its kernels lose their variables; runs continue.{" "}
      <button class="danger" onClick={stop}>
        Stop JupyterLab
      </button>{" "}
      <button onClick={() => setAsks(false)}>Cancel</button>
    </span>
  );
}

/** The servers of the project. They are polled: the store does not contain them. */
function Servers() {
  const [servers, setServers] = useState<AppRow[]>([]);
  const [error, setError] = useState<Error>();
  const project = currentProject();
  useEffect(() => {
    let isCurrent = true;
    const refresh = () =>
      getApps().then(
        ({ apps }) => isCurrent && setServers(apps.filter((a) => a.kind === "jupyter")),
        (refused: Error) => isCurrent && setError(refused),
      );
    void refresh();
    const timer = setInterval(() => void refresh(), POLL_MS);
    return () => {
      isCurrent = false;
      clearInterval(timer);
    };
  }, [project]);
  return (
    <>
      <Failure error={error} />
      {servers.length > 0 && <h2>Servers</h2>}
      {servers.map((app) => (
        <div class="bar server" key={app.id}>
          <State state={app.state === "ready" ? "running" : app.state === "starting" ? "waiting" : "failed"} />
          <a href={to(`jupyter?app=${app.id}`)}>{titleOf(app)}</a>
          <span class="dim">{app.message ?? summary(app)}</span>
          <Stop app={app} onError={setError} />
        </div>
      ))}
    </>
  );
}

// ---- the view -----------------------------------------------------------------------------------

function Lab({ id }: { id: number }) {
  const state = useApp(String(id), () => getApp(id));
  const [error, setError] = useState<Error>();
  const { app } = state;
  return (
    <main class="framed">
      <header class="bar">
        <h1>Jupyter</h1>
        {app && <span title={summary(app)}>{titleOf(app)}</span>}
        <button onClick={() => setParams({ app: null })}>Settings…</button>
        {app && <Stop app={app} onError={setError} />}
        <AppLinks state={state} />
        <Failure error={error} />
      </header>
      <AppFrame title="JupyterLab" state={state} onRestart={() => setParams({ app: null })} />
    </main>
  );
}

/** /jupyter, /jupyter?app=7 */
export function Jupyter() {
  useTitle("Jupyter");
  const { params } = useAddress();
  const id = params.get("app") ?? "";
  if (/^[0-9]{1,15}$/.test(id)) return <Lab key={id} id={Number(id)} />;
  return (
    <main>
      <header class="bar">
        <h1>Jupyter</h1>
        <span class="dim">Notebooks with a kernel for experiments and trainings</span>
      </header>
      <Servers key={currentProject() ?? ""} />
      <Form key={`form ${currentProject() ?? ""}`} />
    </main>
  );
}
