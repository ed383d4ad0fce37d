// SPDX-License-Identifier: Apache-2.0
// The models of the project, with their versions, metrics, and where each came from.
import { to } from "./address";
import { encodePath, getModels, type ModelVersion, projectFiles } from "./file_api";
import "./files.css";
import { age, count, metric, size } from "./format";
import { useLive } from "./live";
import { Failure, Scroll, useNow, useTitle } from "./parts";

function Origin({ version: v }: { version: ModelVersion }) {
  if (v.run === null) return null;
  return (
    <>
      <a href={to(`runs/${v.run}`)}>Run {v.run}</a>
      {v.trial !== null && (
        <>
          , <a href={to(`runs/${v.run}/trials/${v.trial}`)}>trial {v.trial}</a>
        </>
      )}
    </>
  );
}

function Versions({ name, versions, now }: { name: string; versions: ModelVersion[]; now: number }) {
  const metrics = [...new Set(versions.flatMap((v) => Object.keys(v.metrics)))];
  const path = (v: ModelVersion) => encodePath(v.path.split("/"));
  return (
    <Scroll label={`Table of ${name}`}>
      <table aria-label={`Versions of ${name}`}>
        <thead>
          <tr>
            <th class="right">Version</th>
            {metrics.map((m) => (
              <th key={m} class="right">
                {m}
              </th>
            ))}
            <th>From</th>
            <th>Exported</th>
            <th>By</th>
            <th class="right">Size</th>
            <th>Description</th>
            <th />
          </tr>
        </thead>
        <tbody>
          {versions.map((v) => (
            <tr key={v.version}>
              <td class="right">
                <a href={to(`files/${path(v)}`)}>{v.version}</a>
              </td>
              {metrics.map((m) => (
                <td key={m} class="right">
                  {metric(v.metrics[m])}
                </td>
              ))}
              <td>
                <Origin version={v} />
              </td>
              <td title={v.created === null ? "" : new Date(v.created).toLocaleString()}>
                {v.created !== null && age(new Date(v.created).toISOString(), now)}
              </td>
              <td>{v.user}</td>
              <td class="right">{size(v.size)}</td>
              <td class="command" title={v.description ?? ""}>
                {v.description}
              </td>
              <td>
                <a href={projectFiles.content(path(v))} download aria-label={`Download version ${v.version} of ${name}`}>
                  Download
                </a>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

export function Models() {
  useTitle("Models");
  const now = useNow();
  const { value, error } = useLive("models", getModels);
  return (
    <main>
      <header class="bar">
        <h1>Models</h1>
        {value && <span class="dim">{count(value.models.length)}</span>}
      </header>
      <Failure error={error} />
      {value?.models.length === 0 && (
        <p>
          This project has no models yet; <code>from hops import model; model.export(…)</code> saves one in{" "}
          <code>Models/NAME/VERSION</code>.
        </p>
      )}
      {value?.models.map((m) => (
        <section key={m.name}>
          <h2>{m.name}</h2>
          <Versions name={m.name} versions={m.versions} now={now} />
        </section>
      ))}
    </main>
  );
}
