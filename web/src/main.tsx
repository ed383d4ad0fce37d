// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import { followLinks, go, inProject, to, useAddress } from "./address";
import { getProjects } from "./api";
import { Cluster } from "./cluster";
import { Compare } from "./compare";
import { Files } from "./files";
import { Jupyter } from "./jupyter";
import { useConnection, useLive } from "./live";
import { Models } from "./models";
import { Notifications } from "./notifications";
import { Run } from "./run";
import { Runs } from "./runs";
import { Shares } from "./shares";
import "./style.css";
import { TensorBoard } from "./tensorboard";
import { Trial } from "./trial";

function Page() {
  const { path } = useAddress();
  if (path[0] === "runs" && path[1] && path[2] === "trials" && path[3]) return <Trial run={path[1]} id={path[3]} />;
  if (path[0] === "runs" && path[1]) return <Run id={path[1]} />;
  if (path[0] === "cluster") return <Cluster />;
  if (path[0] === "compare") return <Compare />;
  if (path[0] === "files") return <Files names={path.slice(1)} />;
  if (path[0] === "shares") return <Shares />;
  if (path[0] === "models") return <Models />;
  if (path[0] === "tensorboard") return <TensorBoard />;
  if (path[0] === "jupyter") return <Jupyter />;
  return <Runs />;
}

/** What the navigation shows: the first part of a view's path, and its title. */
const VIEWS: [string, string][] = [
  ["", "Runs"],
  ["cluster", "Cluster"],
  ["files", "Files"],
  ["shares", "Shares"],
  ["models", "Models"],
  ["tensorboard", "TensorBoard"],
  ["jupyter", "Jupyter"],
];

/** The projects of this user, if there are several. */
function Projects() {
  const { project } = useAddress();
  const { value } = useLive("projects", getProjects);
  if (!value || value.projects.length < 2) return null;
  return (
    <select
      class="projects"
      aria-label="Project"
      value={project ?? ""}
      title={value.projects.find((p) => (p.is_own ? project === null : p.id === project))?.path}
      onChange={(e) => go(inProject(e.currentTarget.value || null, ""))}
    >
      {value.projects.map((p) => (
        <option key={p.id} value={p.is_own ? "" : p.id}>
          {p.name}
        </option>
      ))}
    </select>
  );
}

function ConnectionState() {
  const state = useConnection();
  if (state === "connected") return null;
  return (
    <p class="connection" role="alert">
      {state === "lost"
        ? "The server does not answer; what is shown may be outdated. Trying again…"
        : "This session has ended; what is shown may be outdated. Log in with the address that `hopyard ui` has printed."}
    </p>
  );
}

function App() {
  const { path } = useAddress();
  const current = path[0] === "runs" || path[0] === "compare" ? "" : (path[0] ?? "");
  return (
    <>
      <nav class="top" aria-label="Views">
        <a href={to("")} class="brand">
          hopyard
        </a>
        <Projects />
        {VIEWS.map(([view, title]) => (
          <a key={view} href={to(view)} aria-current={view === current ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <ConnectionState />
      <Page />
      <Notifications />
    </>
  );
}

document.addEventListener("click", followLinks);
render(<App />, document.getElementById("app")!);
