// SPDX-License-Identifier: Apache-2.0
// Data sets that the project shares with other users, and those that are shared with it.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { setParams, to, useAddress } from "./address";
import { request } from "./api";
import { encodePath } from "./file_api";
import { age } from "./format";
import { Copy, Failure, Scroll, useNow, useTitle } from "./parts";
import "./shares.css";

interface Given {
  path: string;
  with: string;
  write: boolean;
  since_ms: number;
  complete: boolean;
  name: string;
  target: string;
  accept: string;
}

interface Received {
  name: string;
  target: string | null;
  write: boolean;
  error: string | null;
}

interface Report {
  changed: number;
  foreign: number;
  blocked: string | null;
  missing: string | null;
}

const call = <T,>(method: string, path: string, values: Record<string, string>) =>
  request<T>(`${path}?${new URLSearchParams(values)}`, { method });

const rights = (write: boolean): string => (write ? "read and write" : "read");

/** Both lists, read again when `version` changes and when the window gets the focus. */
function useShares(version: number) {
  const [state, setState] = useState<{ value?: { given: Given[]; received: Received[] }; error?: Error }>({});
  const [focused, setFocused] = useState(0);
  useEffect(() => {
    const onFocus = () => setFocused((n) => n + 1);
    addEventListener("focus", onFocus);
    return () => removeEventListener("focus", onFocus);
  }, []);
  useEffect(() => {
    let isCurrent = true;
    request<{ given: Given[]; received: Received[] }>("/shares").then(
      (value) => isCurrent && setState({ value }),
      (error: Error) => isCurrent && setState({ error }),
    );
    return () => {
      isCurrent = false;
    };
  }, [version, focused]);
  return state;
}

/** A button with an inline confirmation. */
function Confirm(props: { label: string; question: string; action: string; onUse: () => Promise<unknown>; onDone: () => void }) {
  const [asks, setAsks] = useState(false);
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<Error>();
  const use = () => {
    setBusy(true);
    props.onUse().then(props.onDone, (failure: Error) => {
      setBusy(false);
      setError(failure);
    });
  };
  if (!asks) return <button onClick={() => setAsks(true)}>{props.label}</button>;
  return (
    <span class="question" onKeyDown={(e) => e.key === "Escape" && setAsks(false)}>
      {props.question}{" "}
      <button class="danger" disabled={busy} onClick={use}>
        {props.action}
      </button>{" "}
      <button onClick={() => setAsks(false)} ref={(button) => button?.focus()}>
        Cancel
      </button>
      <Failure error={error} />
    </span>
  );
}

// ---- with others -------------------------------------------------------------------------------------------------------

type Added = Pick<Given, "path" | "with" | "write"> & { report: Report };

/** What the owner has to do next. */
function Done({ share }: { share: Added }) {
  const { report } = share;
  return (
    <div class="notice" role="status">
      {share.with} can {rights(share.write)} {share.path}, including files that are added later. To use it in a project,{" "}
      {share.with} runs the command below there, or pastes it into this page of that project.
      {report.blocked && (
        <p class="bad">
          {share.with} cannot pass through {report.blocked} yet: its owner has to allow that.
        </p>
      )}
      {report.foreign > 0 && <p>{report.foreign} files in it belong to other users and keep their permissions.</p>}
    </div>
  );
}

function ShareForm({ onDone }: { onDone: () => void }) {
  const { params } = useAddress();
  const [user, setUser] = useState("");
  const [write, setWrite] = useState(false);
  const [busy, setBusy] = useState(false);
  const [added, setAdded] = useState<Added>();
  const [error, setError] = useState<Error>();
  const path = params.get("path") ?? "";
  const submit = async (event: Event) => {
    event.preventDefault();
    const share = { path: path.trim().replace(/\/+$/, ""), with: user.trim(), write };
    setBusy(true);
    setAdded(undefined);
    setError(undefined);
    try {
      const report = await call<Report>("POST", "/shares", { path: share.path, with: share.with, write: write ? "1" : "0" });
      setAdded({ ...share, report });
      onDone();
    } catch (failure) {
      setError(failure as Error);
    }
    setBusy(false);
  };
  return (
    <>
      <form class="bar share" onSubmit={submit}>
        <label>
          Folder{" "}
          <input
            value={path}
            placeholder="Resources/train"
            onInput={(e) => setParams({ path: e.currentTarget.value || null })}
          />
        </label>
        <label>
          with user <input value={user} placeholder="bob" onInput={(e) => setUser(e.currentTarget.value)} />
        </label>
        <label class="check">
          <input type="checkbox" checked={write} onChange={(e) => setWrite(e.currentTarget.checked)} /> can write
        </label>
        <button disabled={busy || !path.trim() || !user.trim()}>{busy ? "Sharing…" : "Share"}</button>
      </form>
      <Failure error={error} />
      {added && <Done share={added} />}
    </>
  );
}

interface GivenProps {
  share: Given;
  now: number;
  onMissing: (text: string | null) => void; // what to do about a data set that is not there any more
  onChange: () => void;
}

function GivenRow({ share, now, onMissing, onChange }: GivenProps) {
  const values = { path: share.path, with: share.with };
  return (
    <tr>
      <td>
        <a href={to(`files/${encodePath(share.path.split("/"))}`)}>{share.path}</a>
      </td>
      <td data-label="with">{share.with}</td>
      <td data-label="access">
        {rights(share.write)}
        {!share.complete && <span class="bad"> (incomplete: share it again)</span>}
      </td>
      <td>
        <Copy text={share.accept} />
      </td>
      <td class="dim" title={new Date(share.since_ms).toLocaleString()}>
        {age(new Date(share.since_ms).toISOString(), now)}
      </td>
      <td class="actions">
        <Confirm
          label="Revoke…"
          question={`Revoke ${share.with}'s access to ${share.path}?`}
          action="Revoke access"
          onUse={async () => onMissing((await call<Report>("DELETE", "/shares", values)).missing)}
          onDone={onChange}
        />
      </td>
    </tr>
  );
}

function Table({ label, titles, children }: { label: string; titles: string[]; children: ComponentChildren }) {
  return (
    <Scroll label={label}>
      <table>
        <thead>
          <tr>
            {titles.map((title) => (
              <th key={title}>{title || <span class="hidden">Actions</span>}</th>
            ))}
          </tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </Scroll>
  );
}

// ---- with this project ---------------------------------------------------------------------------------------------------

/** "hopyard share accept --as NAME PATH", quoted for a shell, or only a path. */
export function parseOffer(text: string): { name: string; target: string } {
  const words = [...text.trim().matchAll(/(?:'[^']*'|\\.|[^\s'])+/g)].map((m) =>
    m[0].replace(/'([^']*)'|\\(.)/g, (_, quoted: string | undefined, escaped: string) => quoted ?? escaped),
  );
  const as = words.indexOf("--as");
  const target = words.at(-1) ?? "";
  const parts = target.split("/").filter(Boolean);
  return { name: as >= 0 ? (words[as + 1] ?? "") : `${parts.at(-2) ?? ""}::${parts.at(-1) ?? ""}`, target };
}

function AcceptForm({ onDone }: { onDone: () => void }) {
  const [text, setText] = useState("");
  const [error, setError] = useState<Error>();
  const submit = (event: Event) => {
    event.preventDefault();
    call("POST", "/shares/received", parseOffer(text)).then(() => {
      setText("");
      setError(undefined);
      onDone();
    }, setError);
  };
  return (
    <form class="bar share" onSubmit={submit}>
      <label class="offer">
        Command or path from the owner{" "}
        <input
          value={text}
          placeholder="hopyard share accept --as churn::train /home/alice/churn/Resources/train"
          onInput={(e) => setText(e.currentTarget.value)}
        />
      </label>
      <button disabled={!text.trim()}>Accept</button>
      <Failure error={error} />
    </form>
  );
}

function ReceivedRow({ share, onChange }: { share: Received; onChange: () => void }) {
  const path = `Shared/${share.name}`;
  return (
    <tr>
      <td>{share.error ? path : <a href={to(`files/${encodePath(path.split("/"))}`)}>{path}</a>}</td>
      <td data-label={share.error ? undefined : "access"}>{share.error ? <span class="bad">{share.error}</span> : rights(share.write)}</td>
      <td>{share.target && <Copy text={share.target} />}</td>
      <td class="actions">
        <Confirm
          label="Remove…"
          question={`Remove ${path} from this project?`}
          action="Remove"
          onUse={() => call("DELETE", "/shares/received", { name: share.name })}
          onDone={onChange}
        />
      </td>
    </tr>
  );
}

// ---- the view ----------------------------------------------------------------------------------------------------------

export function Shares() {
  useTitle("Shares");
  const [version, setVersion] = useState(0);
  const { value, error } = useShares(version);
  const now = useNow();
  const [missing, setMissing] = useState<string | null>(null);
  const change = () => setVersion((n) => n + 1);
  return (
    <main class="shares">
      <h1>Shares</h1>
      <Failure error={error} />
      <section aria-label="Shared with others">
        <h2>Shared with others</h2>
        <ShareForm onDone={change} />
        {value && value.given.length === 0 && <p class="dim">Nothing is shared with others.</p>}
        {value && value.given.length > 0 && (
          <Table label="Shares with others" titles={["Folder", "With", "Access", "Command for the receiver", "Since", ""]}>
            {value.given.map((share) => (
              <GivenRow
                key={`${share.path} ${share.with}`}
                share={share}
                now={now}
                onMissing={setMissing}
                onChange={change}
              />
            ))}
          </Table>
        )}
        {missing && (
          <p class="notice" role="status">
            {missing}
          </p>
        )}
      </section>
      <section aria-label="Shared with this project">
        <h2>Shared with this project</h2>
        <AcceptForm onDone={change} />
        {value && value.received.length === 0 && <p class="dim">Nothing is shared with this project.</p>}
        {value && value.received.length > 0 && (
          <Table label="Shares with this project" titles={["Name", "Access", "Real path", ""]}>
            {value.received.map((share) => (
              <ReceivedRow key={share.name} share={share} onChange={change} />
            ))}
          </Table>
        )}
      </section>
    </main>
  );
}
