// SPDX-License-Identifier: Apache-2.0
// The form that starts a run: a program of the project, a search space, limits, and where it runs.
import { useState } from "preact/hooks";
import { go, to } from "./address";
import { getScripts, Refused, startRun } from "./api";
import { Dialog } from "./dialog";
import { command as shown } from "./format";
import { useLive } from "./live";
import { Failure } from "./parts";

type Kind = "single" | "grid" | "random" | "evolve";

interface Dimension {
  name: string;
  values: string; // "0.1,0.01", "log:1e-5..1e-1"
}

interface Form {
  script: string;
  words: string; // after the script
  kind: Kind;
  space: Dimension[];
  trials: string; // of a random search
  generations: string; // of an evolution
  goal: "max" | "min" | "none";
  metric: string;
  options: Record<string, string>;
  engine: string;
}

const EMPTY: Form = {
  script: "",
  words: "",
  kind: "grid",
  space: [{ name: "", values: "" }],
  trials: "20",
  generations: "10",
  goal: "max",
  metric: "",
  options: {},
  engine: "",
};

const FIELDS: [option: string, title: string, help: string][] = [
  ["name", "Name", ""],
  ["parallel", "Trials at a time", "empty: as many as there are slots"],
  ["memory", "Memory per trial", "for example 4G; a trial that uses more is killed"],
  ["gpus", "GPUs per trial", "a number, or a share of one such as 0.5"],
  ["timeout", "Time per trial", "for example 90s, 15m or 1h"],
  ["retries", "Retries", "of a trial that fails"],
];

/** The program that runs a script, and the words in front of it. */
function interpreter(script: string): string[] {
  if (script.endsWith(".py")) return ["python", script];
  if (script.endsWith(".sh")) return ["sh", script];
  if (script.endsWith(".ipynb")) return ["jupyter", "nbconvert", "--to", "notebook", "--execute", "--stdout", script];
  return [script];
}

/** Words as a shell splits them, with quotes. */
export function splitWords(text: string): string[] {
  const words: string[] = [];
  for (const [word] of text.matchAll(/(?:"(?:[^"\\]|\\.)*"|'[^']*'|\\.|[^\s"'\\])+/g))
    words.push(
      word.replace(/"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)/g, (_, double, single, escaped) =>
        double !== undefined ? double.replace(/\\(["\\$`])/g, "$1") : (single ?? escaped),
      ),
    );
  return words;
}

/** "--lr {lr}" for each hyperparameter that the words do not contain. */
function missingWords(form: Form): string[] {
  if (form.script.endsWith(".ipynb") || form.kind === "single") return []; // a notebook reads HOPYARD_PARAMS
  const missing = form.space.filter((d) => d.name && !form.words.includes(`{${d.name}}`));
  return missing.flatMap((d) => [`--${d.name}`, `{${d.name}}`]);
}

export const commandOf = (form: Form) => [...interpreter(form.script), ...splitWords(form.words), ...missingWords(form)];

export function optionsOf(form: Form): [string, string][] {
  const options: [string, string][] = [];
  const dimension = form.kind === "grid" ? "grid" : "space";
  if (form.kind === "random") options.push(["random", form.trials]);
  if (form.kind === "evolve") options.push(["evolve", ""], ["generations", form.generations]);
  if (form.kind !== "single")
    for (const d of form.space) if (d.name || d.values) options.push([dimension, `${d.name}=${d.values}`]);
  if (form.goal !== "none" && form.metric) options.push([form.goal, form.metric]);
  for (const [name, value] of Object.entries(form.options)) if (value) options.push([name, value]);
  if (form.engine) options.push(["engine", form.engine]);
  return options;
}

function Space({ form, set }: { form: Form; set: (change: Partial<Form>) => void }) {
  const change = (i: number, d: Partial<Dimension>) =>
    set({ space: form.space.map((old, k) => (k === i ? { ...old, ...d } : old)) });
  const help = form.kind === "grid" ? "0.1,0.01 or 1..4" : "log:1e-5..1e-1, 1..4, 0.0..0.5 or relu,tanh";
  return (
    <fieldset class="wide">
      <legend>Hyperparameters</legend>
      {form.space.map((d, i) => (
        <div class="dimension" key={i}>
          <input
            aria-label={`Name of hyperparameter ${i + 1}`}
            placeholder="lr"
            value={d.name}
            onInput={(e) => change(i, { name: e.currentTarget.value })}
          />
          <input
            aria-label={`Values of hyperparameter ${i + 1}`}
            placeholder={help}
            value={d.values}
            onInput={(e) => change(i, { values: e.currentTarget.value })}
          />
          <button
            type="button"
            aria-label={`Remove hyperparameter ${i + 1}`}
            onClick={() => set({ space: form.space.filter((_, k) => k !== i) })}
          >
            ×
          </button>
        </div>
      ))}
      <button type="button" onClick={() => set({ space: [...form.space, { name: "", values: "" }] })}>
        Add a hyperparameter
      </button>
      <small>Values: {help}</small>
    </fieldset>
  );
}

function Search({ form, set }: { form: Form; set: (change: Partial<Form>) => void }) {
  return (
    <>
      <label for="start-kind">Search</label>
      <select id="start-kind" value={form.kind} onChange={(e) => set({ kind: e.currentTarget.value as Kind })}>
        <option value="grid">every combination (grid)</option>
        <option value="random">at random</option>
        <option value="evolve">differential evolution</option>
        <option value="single">none: one trial</option>
      </select>
      {form.kind === "random" && (
        <>
          <label for="start-trials">Trials</label>
          <input id="start-trials" type="number" min="0" value={form.trials} onInput={(e) => set({ trials: e.currentTarget.value })} />
        </>
      )}
      {form.kind === "evolve" && (
        <>
          <label for="start-generations">Generations</label>
          <input
            id="start-generations"
            type="number"
            min="0"
            value={form.generations}
            onInput={(e) => set({ generations: e.currentTarget.value })}
          />
        </>
      )}
      {form.kind !== "single" && <Space form={form} set={set} />}
      <label for="start-goal">Goal</label>
      <div class="pair">
        <select id="start-goal" value={form.goal} onChange={(e) => set({ goal: e.currentTarget.value as Form["goal"] })}>
          <option value="max">maximize</option>
          <option value="min">minimize</option>
          <option value="none">no metric</option>
        </select>
        {form.goal !== "none" && (
          <input aria-label="Metric" required placeholder="accuracy" value={form.metric} onInput={(e) => set({ metric: e.currentTarget.value })} />
        )}
      </div>
    </>
  );
}

function Limits({ form, set, wrong }: { form: Form; set: (change: Partial<Form>) => void; wrong: string | null }) {
  return (
    <>
      {FIELDS.map(([option, title, help]) => (
        <>
          <label for={`start-${option}`}>{title}</label>
          <div>
            <input
              id={`start-${option}`}
              value={form.options[option] ?? ""}
              aria-invalid={wrong === option}
              onInput={(e) => set({ options: { ...form.options, [option]: e.currentTarget.value } })}
            />
            {help && <small>{help}</small>}
          </div>
        </>
      ))}
      <label for="start-engine">Engine</label>
      <div>
        <input id="start-engine" list="engines" value={form.engine} aria-invalid={wrong === "engine"} onInput={(e) => set({ engine: e.currentTarget.value })} />
        <datalist id="engines">
          <option value="yarn" />
          <option value="spark://" />
        </datalist>
        <small>empty: this machine; yarn, or spark://host:7077</small>
      </div>
    </>
  );
}

export function StartRun({ onClose }: { onClose: () => void }) {
  const [form, setForm] = useState(EMPTY);
  const [error, setError] = useState<Error>();
  const [isBusy, setBusy] = useState(false);
  const { value } = useLive("scripts", getScripts);
  const set = (change: Partial<Form>) => setForm((old) => ({ ...old, ...change }));
  const command = commandOf(form);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      const { run } = await startRun(command, optionsOf(form));
      onClose();
      go(to(`runs/${run}`));
    } catch (e) {
      setError(e as Error);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Start a run" onClose={onClose}>
      <form class="start" onSubmit={(e) => void submit(e)}>
        <div class="fields">
          <label for="start-script">Program</label>
          <div>
            <input id="start-script" required list="scripts" value={form.script} onInput={(e) => set({ script: e.currentTarget.value })} />
            <datalist id="scripts">
              {value?.scripts.map((s) => <option key={s} value={s} />)}
            </datalist>
            <small>a script or notebook of the project, or any program</small>
          </div>
          <label for="start-words">Arguments</label>
          <input id="start-words" placeholder="--epochs 10 --lr {lr}" value={form.words} onInput={(e) => set({ words: e.currentTarget.value })} />
          <Search form={form} set={set} />
          <Limits form={form} set={set} wrong={error instanceof Refused ? error.option : null} />
        </div>
        {form.script && (
          <p>
            Each trial runs <code>{shown(command)}</code>
          </p>
        )}
        <Failure error={error} />
        <p class="buttons">
          <button type="button" onClick={onClose}>
            Cancel
          </button>
          <button type="submit" class="primary" disabled={isBusy}>
            Start
          </button>
        </p>
      </form>
    </Dialog>
  );
}
