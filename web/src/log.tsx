// SPDX-License-Identifier: Apache-2.0
// The output of a trial, as a terminal shows it, live. Only the visible lines are elements.
import { useEffect, useReducer, useRef, useState } from "preact/hooks";
import { endpoint } from "./api";
import { size as sizeText } from "./format";
import "./log.css";
import { LogWindow } from "./log_window";
import { Failure } from "./parts";
import type { Span } from "./terminal";

const LINE = 17; // pixels, as in the style sheet
const MORE = 40; // lines that are rendered above and below the visible ones
const NEAR = 200; // lines from the edge of the window at which more is read

function Line({ spans, isFound }: { spans: Span[]; isFound: boolean }) {
  return (
    <div class={isFound ? "line found" : "line"}>
      {spans.map((s) =>
        s.style || s.color || s.back ? (
          <span class={s.style} style={{ color: s.color || undefined, backgroundColor: s.back || undefined }}>
            {s.text}
          </span>
        ) : (
          s.text
        ),
      )}
      {"\n"}
    </div>
  );
}

interface Props {
  run: string;
  trial: string;
  stream: string;
  size: number;
  error: number | null; // the offset at which it opens; null: it follows the end
  other: string; // the other stream ...
  openOther: (error: number) => void; // ... which is shown from this offset
}

export function Log({ run, trial, stream, size, error: jump, other, openOther }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const log = useRef<LogWindow | null>(null);
  const follows = useRef(true);
  const lastTop = useRef(0);
  const lastHeight = useRef(0);
  const [, redraw] = useReducer((n: number) => n + 1, 0);
  const [error, setError] = useState<Error>();
  const [text, setText] = useState("");
  const [found, setFound] = useState<{ offset: number; line: number } | null>(null);
  const [message, setMessage] = useState("");

  useEffect(() => {
    const made = new LogWindow(run, trial, stream, size, () => redraw(0), setError);
    log.current = made;
    follows.current = jump === null;
    if (jump === null) void made.follow();
    else void showAt(jump, true);
    return () => made.close();
  }, [run, trial, stream]);
  useEffect(() => {
    const element = box.current;
    if (!element || !follows.current) return;
    element.scrollTop = element.scrollHeight;
    lastTop.current = element.scrollTop;
    lastHeight.current = element.scrollHeight;
  });

  const window = log.current;
  const lines = window?.screen.length ?? 0;

  const scrollToLine = (line: number) => {
    if (box.current) box.current.scrollTop = Math.max(0, line * LINE - box.current.clientHeight / 3);
  };
  const showAt = async (offset: number, isMatch: boolean) => {
    const window = log.current;
    if (!window) return;
    follows.current = false;
    try {
      const line = await window.show(offset);
      setFound(isMatch ? { offset, line } : null);
      requestAnimationFrame(() => scrollToLine(line));
    } catch (e) {
      setError(e as Error);
    }
  };
  const find = async (wanted: string | null, from: number, backward: boolean) => {
    if (!window) return;
    setMessage("Searching…");
    try {
      const offset = await window.find(wanted, from, backward);
      if (offset === null && wanted === null) {
        const error = await window.find(null, 0, false, other); // Python's tracebacks are in stderr
        if (error !== null) return openOther(error);
      }
      setMessage(offset === null ? (wanted === null ? "No error was found." : "Not found.") : "");
      if (offset !== null) await showAt(offset, true);
    } catch (e) {
      setMessage("");
      setError(e as Error);
    }
  };
  const toEnd = () => {
    follows.current = true;
    setFound(null);
    void window?.follow();
  };
  const onScroll = async () => {
    const element = box.current;
    if (!element || !window) return;
    const top = element.scrollTop / LINE;
    const bottom = (element.scrollTop + element.clientHeight) / LINE;
    const isAtEnd = window.end >= window.size && element.scrollHeight - element.scrollTop - element.clientHeight < 2 * LINE;
    const isShorter = element.scrollHeight < lastHeight.current; // then the browser has moved it
    if (!isShorter && element.scrollTop < lastTop.current - 1) follows.current = false;
    else if (isAtEnd) follows.current = true;
    lastTop.current = element.scrollTop;
    lastHeight.current = element.scrollHeight;
    redraw(0);
    let moved = 0;
    if (!follows.current && top < NEAR) moved = await window.readBefore();
    else if (!follows.current && lines - bottom < NEAR) moved = -(await window.readAfter());
    if (moved) element.scrollTop += moved * LINE;
    if (moved) setFound((f) => f && { ...f, line: f.line + moved });
  };

  const height = box.current?.clientHeight ?? 500;
  const top = follows.current ? Math.max(0, lines * LINE - height) : (box.current?.scrollTop ?? 0);
  const first = Math.max(0, Math.floor(top / LINE) - MORE);
  const last = Math.min(lines, Math.ceil((top + height) / LINE) + MORE);
  const shown = window ? Array.from({ length: Math.max(0, last - first) }, (_, i) => first + i) : [];
  return (
    <>
      <Failure error={error} />
      <form
        class="bar log-bar"
        onSubmit={(e) => {
          e.preventDefault();
          void find(text || null, found ? found.offset + 1 : 0, false);
        }}
      >
        <input
          type="search"
          placeholder="Search in the output"
          aria-label="Search in the output"
          value={text}
          onInput={(e) => {
            setText(e.currentTarget.value);
            setFound(null);
          }}
        />
        <button type="submit" disabled={!text}>
          Next
        </button>
        <button type="button" disabled={!text} onClick={() => void find(text, found?.offset ?? Number.MAX_SAFE_INTEGER, true)}>
          Previous
        </button>
        <button type="button" onClick={() => void find(null, 0, false)}>
          First error
        </button>
        <button type="button" onClick={() => void showAt(0, false)}>
          Start
        </button>
        <button type="button" onClick={toEnd}>
          End
        </button>
        <a href={endpoint(`/runs/${encodeURIComponent(run)}/trials/${trial}/output/${stream}`)} download={`${run}-${trial}-${stream}.txt`}>
          Download
        </a>
        <span class="dim" role="status">
          {message ||
            (window && window.size > 0 && `${sizeText(window.start)} to ${sizeText(window.end)} of ${sizeText(window.size)}`)}
        </span>
      </form>
      <div ref={box} class="log" role="log" tabIndex={0} aria-label={`${stream} of trial ${trial}`} onScroll={() => void onScroll()}>
        {lines === 0 ? (
          <span class="dim">{window?.isEnded ? "No output." : "No output yet."}</span>
        ) : (
          <div class="lines" style={{ height: `${lines * LINE}px` }}>
            <div class="window" style={{ top: `${first * LINE}px` }}>
              {shown.map((i) => (
                <Line key={i} spans={window!.screen.line(i)} isFound={found?.line === i} />
              ))}
            </div>
          </div>
        )}
      </div>
    </>
  );
}
