// SPDX-License-Identifier: Apache-2.0
// The selected trials of a run. Only the rows that are in sight are in the document.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { go, setParams, to, useAddress } from "./address";
import type { Run } from "./api";
import { exportCsv, exportJson } from "./export";
import { capital, duration, unitName, unitOf, units } from "./format";
import { Tags } from "./labels";
import { State } from "./parts";
import { readPicked, writePicked } from "./selection";
import { cellText, type Column, sortRows, type Trials } from "./trials";

const ROW = 30; // pixels, as in run.css
const MORE = 10; // rows above and below those in sight

const HIDDEN = ["start", "note"]; // unless the address says otherwise

export function allKeys(trials: Trials, run: Run): string[] {
  const names = trials.paramNames.filter((n) => !run.ranks || n !== unitOf(run)); // the first column has it
  const params = names.map((n) => `p:${n}`);
  const labels = trials.hasLabels ? ["tags", "note"] : [];
  return ["number", "state", ...(run.metric ? ["value"] : []), ...params, ...labels, "start", "time", "message"];
}

/** Those that are shown: all but the hidden ones, in their order. */
function shownKeys(all: string[], params: URLSearchParams): string[] {
  const hidden = new Set(params.get("hide")?.split(",") ?? HIDDEN);
  return all.filter((key) => key === "number" || !hidden.has(key));
}

function Chooser({ keys, shown, titles }: { keys: string[]; shown: string[]; titles: (key: string) => string }) {
  const toggle = (key: string) => {
    const absent = HIDDEN.filter((k) => !keys.includes(k)); // a note may come later
    const hidden = [...keys.filter((k) => (k === key ? shown.includes(k) : !shown.includes(k))), ...absent];
    const isUsual = hidden.length === HIDDEN.length && HIDDEN.every((k) => hidden.includes(k));
    setParams({ hide: isUsual ? null : hidden.join(",") });
  };
  return (
    <details class="menu">
      <summary>Columns</summary>
      <div class="panel">
        {keys.slice(1).map((key) => (
          <label key={key}>
            <input type="checkbox" checked={shown.includes(key)} onChange={() => toggle(key)} /> {titles(key)}
          </label>
        ))}
      </div>
    </details>
  );
}

function Cell({ trials, column, i }: { trials: Trials; column: Column; i: number }) {
  if (column.key === "tags") return <Tags tags={trials.label(i).tags} />;
  const text = cellText(column, i);
  if (column.key === "state") return <State state={text} />;
  const x = column.numbers[i]!;
  if ((column.key === "time" || column.key === "start") && text) return <>{duration(x * 1000)}</>;
  return <>{text}</>;
}

const isRight = (column: Column) => column.texts === null;
const classOf = (c: Column) => (isRight(c) ? "right" : c.key === "message" || c.key === "note" ? "command" : "");

interface HeadProps {
  columns: Column[];
  sort: string;
}

function Head({ columns, sort }: HeadProps) {
  const direction = (key: string) => (sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none");
  return (
    <thead>
      <tr aria-rowindex={1}>
        <td class="pick" />
        {columns.map((c) => (
          <th key={c.key} scope="col" class={isRight(c) ? "right" : ""} aria-sort={direction(c.key)}>
            <button onClick={() => setParams({ sort: sort === c.key ? `-${c.key}` : c.key })}>{c.title}</button>
          </th>
        ))}
      </tr>
    </thead>
  );
}

interface RowProps {
  run: Run;
  trials: Trials;
  columns: Column[];
  i: number;
  at: number;
  picked: number[];
}

function Row({ run, trials, columns, i, at, picked }: RowProps) {
  const number = trials.number(i);
  const href = to(`runs/${run.run}/trials/${number}`);
  const open = (e: MouseEvent) => {
    if (!(e.target as Element).closest("a, input, label") && getSelection()?.isCollapsed !== false) go(href);
  };
  const pick = () => writePicked(picked.includes(number) ? picked.filter((n) => n !== number) : [...picked, number]);
  return (
    <tr aria-rowindex={at + 2} class={number === run.best_trial ? "best" : ""} onClick={open}>
      <td class="pick">
        <input type="checkbox" aria-label={`Pick ${unitName(run, number)}`} checked={picked.includes(number)} onChange={pick} />
      </td>
      {columns.map((c) => (
        <td key={c.key} class={classOf(c)} title={c.key === "tags" || c.key === "note" ? (trials.label(i).note ?? undefined) : undefined}>
          {c.key === "number" ? <a href={href}>{cellText(c, i)}</a> : <Cell trials={trials} column={c} i={i} />}
        </td>
      ))}
    </tr>
  );
}

/** The part of the rows that is in sight, by the scroll position. */
function useWindow(total: number) {
  const box = useRef<HTMLDivElement>(null);
  const [sight, setSight] = useState({ first: 0, rows: 40 });
  const look = () => {
    const element = box.current;
    if (!element) return;
    const first = Math.max(0, Math.floor(element.scrollTop / ROW) - MORE);
    const rows = Math.ceil(element.clientHeight / ROW) + 2 * MORE;
    setSight((old) => (old.first === first && old.rows === rows ? old : { first, rows }));
  };
  useEffect(() => {
    const observer = new ResizeObserver(look);
    if (box.current) observer.observe(box.current);
    return () => observer.disconnect();
  }, []);
  useEffect(look, [total]);
  const first = Math.min(sight.first, Math.max(0, total - 1));
  return { box, look, first, last: Math.min(total, first + sight.rows) };
}

interface Props {
  run: Run;
  trials: Trials;
  rows: Uint32Array; // those that are selected
  tall?: boolean;
}

export function TrialTable({ run, trials, rows, tall }: Props) {
  const { params } = useAddress();
  const keys = allKeys(trials, run);
  const shown = shownKeys(keys, params);
  const columns = shown.map((key) => trials.column(key, run));
  const sort = params.get("sort") ?? (run.metric ? (run.maximize ? "-value" : "value") : "number");
  const sortKey = sort.replace(/^-/, "");
  const sorted = useMemo(
    () => sortRows(rows, trials.column(keys.includes(sortKey) ? sortKey : "number", run), sort.startsWith("-")),
    [rows, trials, sort],
  );
  const exported = keys.filter((key) => shown.includes(key) || key === "tags" || key === "note").map((key) => trials.column(key, run));
  const picked = readPicked(params);
  const title = capital(`${unitOf(run)}s`);
  const { box, look, first, last } = useWindow(sorted.length);
  const visible = [...sorted.subarray(first, last)];
  return (
    <section class="trials">
      <div class="bar">
        <h2>{title}</h2>
        <Chooser keys={keys} shown={shown} titles={(key) => trials.column(key, run).title} />
        <button onClick={() => exportCsv(run, trials, exported, sorted)}>CSV</button>
        <button onClick={() => exportJson(run, trials, exported, sorted)}>JSON</button>
        {picked.length > 0 && (
          <>
            <button onClick={() => setParams({ tab: "compare" })} disabled={picked.length < 2}>
              Compare {units(run, picked.length)}
            </button>
            <button onClick={() => writePicked([])}>Clear</button>
          </>
        )}
      </div>
      <div ref={box} class={`scroll rows ${tall ? "tall" : ""}`} role="region" aria-label={title} tabIndex={0} onScroll={look}>
        <table aria-rowcount={sorted.length + 1}>
          <Head columns={columns} sort={sort} />
          <tbody>
            {first > 0 && <tr class="space" aria-hidden="true" style={{ height: `${first * ROW}px` }} />}
            {visible.map((i, n) => (
              <Row key={i} run={run} trials={trials} columns={columns} i={i} at={first + n} picked={picked} />
            ))}
            {last < sorted.length && (
              <tr class="space" aria-hidden="true" style={{ height: `${(sorted.length - last) * ROW}px` }} />
            )}
          </tbody>
        </table>
      </div>
      {sorted.length === 0 && <p class="dim">{trials.count ? `No ${unitOf(run)} is selected by the filter.` : `There are no ${unitOf(run)}s yet.`}</p>}
    </section>
  );
}

