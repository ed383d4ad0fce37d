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
import { useTitle } from "./parts";
import { Run } from "./run";
import { Runs } from "./runs";
import { Shares } from "./shares";
import "./style.css";
import { TensorBoard } from "./tensorboard";
import { Trial } from "./trial";

function NotFound() {
  useTitle("No such page");
  return (
    <main>
      <h1>There is no such page.</h1>
      <p>
        <a href={to("")}>All runs</a>
      </p>
    </main>
  );
}

function Page() {
  const { path } = useAddress();
  const [view = "runs", id, part, trial] = path;
  if (view === "files") return <Files names={path.slice(1)} />;
  if (view === "runs" && id && part === "trials" && trial && path.length === 4) return <Trial run={id} id={trial} />;
  if (view === "runs" && id && path.length === 2) return <Run id={id} />;
  if (path.length > 1) return <NotFound />;
  if (view === "runs") return <Runs />;
  if (view === "cluster") return <Cluster />;
  if (view === "compare") return <Compare />;
  if (view === "shares") return <Shares />;
  if (view === "models") return <Models />;
  if (view === "tensorboard") return <TensorBoard />;
  if (view === "jupyter") return <Jupyter />;
  return <NotFound />;
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
