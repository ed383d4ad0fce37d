// SPDX-License-Identifier: Apache-2.0
// Previews of files.
import { useEffect, useState } from "preact/hooks";
import type { Feature, FileApi, Preview as Shown } from "./file_api";
import "./files.css";
import { count, metric, size } from "./format";
import { Failure, Scroll } from "./parts";

function Table({ head, rows }: { head: string[]; rows: string[][] }) {
  const isNumber = (i: number) => rows.length > 0 && rows.every((row) => !Number.isNaN(Number(row[i] ?? "")));
  const classes = head.map((_, i) => (isNumber(i) ? "right" : ""));
  return (
    <Scroll label="Preview" class="preview">
      <table>
        <thead>
          <tr>
            {head.map((cell, i) => (
              <th key={i} class={classes[i]}>
                {cell}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, i) => (
            <tr key={i}>
              {row.map((cell, j) => (
                <td key={j} class={classes[j]}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function Columns({ shown }: { shown: Shown }) {
  const type = (c: NonNullable<Shown["columns"]>[number]) => (c.meaning && c.meaning !== c.type ? `${c.meaning} (${c.type})` : (c.type ?? ""));
  return (
    <>
      <p>
        {count(shown.row_count!)} rows in {count(shown.row_groups!)} {shown.row_groups === 1 ? "row group" : "row groups"}
        {shown.created_by && <span class="dim">, written by {shown.created_by}</span>}
      </p>
      <Table head={["Column", "Type", "Values"]} rows={shown.columns!.map((c) => [c.name, type(c), c.repetition ?? ""])} />
    </>
  );
}

function values(f: Feature): string {
  const shown = f.values.map((v) => (typeof v === "number" ? metric(v) : (v ?? "null"))).join(", ");
  return f.count > f.values.length ? `${shown}, … (${count(f.count)})` : shown;
}

function Examples({ shown }: { shown: Shown }) {
  return (
    <>
      {shown.examples!.map((example, i) => (
        <section key={i}>
          <h3>
            Example {i + 1} <span class="dim">{size(example.bytes)}</span>
          </h3>
          {example.features.length === 0 ? (
            <p class="dim">This record is not an Example.</p>
          ) : (
            <Table
              head={["Feature", "Type", "Values"]}
              rows={example.features.map((f) => [f.name, f.is_sequence ? `${f.type} sequence` : f.type, values(f)])}
            />
          )}
        </section>
      ))}
      {shown.cut && <p class="dim">More examples follow.</p>}
    </>
  );
}

function Body({ shown, address }: { shown: Shown; address: string }) {
  switch (shown.kind) {
    case "image":
      return <img class="preview" src={address} alt={shown.path} />;
    case "table":
      return (
        <>
          <Table head={shown.rows![0] ?? []} rows={shown.rows!.slice(1)} />
          {shown.cut && <p class="dim">The first {count(shown.rows!.length)} rows.</p>}
        </>
      );
    case "parquet":
      return <Columns shown={shown} />;
    case "records":
      return <Examples shown={shown} />;
    case "text":
      return (
        <>
          <pre class="log" tabIndex={0} aria-label={`Beginning of ${shown.path}`}>
            {shown.text}
          </pre>
          {shown.cut && <p class="dim">Only the first 64 KB are shown.</p>}
        </>
      );
    default:
      return null;
  }
}

export function Preview({ api, path }: { api: FileApi; path: string }) {
  const [state, setState] = useState<{ shown?: Shown; error?: Error }>({});
  useEffect(() => {
    let isCurrent = true;
    setState({});
    api.preview(path).then(
      (shown) => isCurrent && setState({ shown }),
      (error: Error) => isCurrent && setState({ error }),
    );
    return () => {
      isCurrent = false;
    };
  }, [path]);
  return (
    <>
      <Failure error={state.error} />
      {state.shown?.note && <p class="dim">{state.shown.note}</p>}
      {state.shown && <Body shown={state.shown} address={api.content(path)} />}
    </>
  );
}
