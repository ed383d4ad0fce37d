// SPDX-License-Identifier: Apache-2.0
// The output of a trial, while it is printed. Only its end is kept in the page.
import { useEffect, useRef, useState } from "preact/hooks";
import { readOutput } from "./api";
import { Failure } from "./parts";

const KEPT = 1 << 20; // characters
const NEAR = 40; // pixels from the end that count as the end

/** What a terminal would show: without escape sequences, and of a line that was overwritten its last state. */
export function plain(text: string): string {
  return text
    .replace(/\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])/g, "")
    .replace(/\r+\n/g, "\n")
    .replace(/[^\n]*\r(?=[^\n])/g, "");
}

export function Log({ run, trial, stream }: { run: string; trial: string; stream: string }) {
  const box = useRef<HTMLPreElement>(null);
  const [text, setText] = useState("");
  const [isCut, setCut] = useState(false);
  const [error, setError] = useState<Error>();
  useEffect(() => {
    const abort = new AbortController();
    const decoder = new TextDecoder();
    const follow = async () => {
      let kept = "";
      for await (const piece of readOutput(run, trial, stream, 0, abort.signal)) {
        kept += decoder.decode(piece, { stream: true });
        if (kept.length > 2 * KEPT) {
          kept = kept.slice(kept.indexOf("\n", kept.length - KEPT) + 1);
          setCut(true);
        }
        setText(plain(kept));
      }
    };
    follow().catch((e: Error) => {
      if (!abort.signal.aborted) setError(e);
    });
    return () => abort.abort();
  }, [run, trial, stream]);
  const element = box.current;
  const isAtEnd = !element || element.scrollHeight - element.scrollTop - element.clientHeight < NEAR;
  useEffect(() => {
    if (isAtEnd && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return (
    <>
      <Failure error={error} />
      {isCut && <p class="dim">The beginning is not shown; `hopyard logs {run} {trial}` prints all of it.</p>}
      <pre ref={box} class="log" tabIndex={0} aria-label={`${stream} of trial ${trial}`}>
        {text || "(nothing yet)"}
      </pre>
    </>
  );
}
