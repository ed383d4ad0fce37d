// SPDX-License-Identifier: Apache-2.0
import { render } from "preact";
import "uplot/dist/uPlot.min.css";
import { followLinks, useAddress } from "./address";
import { Run } from "./run";
import { Runs } from "./runs";
import "./style.css";
import { Trial } from "./trial";

function Page() {
  const { path } = useAddress();
  if (path[0] === "runs" && path[1] && path[2] === "trials" && path[3]) return <Trial run={path[1]} id={path[3]} />;
  if (path[0] === "runs" && path[1]) return <Run id={path[1]} />;
  return <Runs />;
}

function App() {
  return (
    <>
      <nav class="top">
        <a href="/" class="brand">
          hopyard
        </a>
        <a href="/">Runs</a>
      </nav>
      <Page />
    </>
  );
}

document.addEventListener("click", followLinks);
render(<App />, document.getElementById("app")!);
