// SPDX-License-Identifier: Apache-2.0
// The files of the project: directories, uploads, and one entry with its preview.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { setParams, to, useAddress } from "./address";
import { Refused } from "./api";
import { type Directory, encodePath, type Entry, type FileApi, join, makeFolder, moveFile, projectFiles, removeFile, trialFiles } from "./file_api";
import "./files.css";
import { age, count, size } from "./format";
import { Copy, Fact, Failure, Scroll, useNow, useTitle } from "./parts";
import { Preview } from "./preview";
import { addUploads, dismiss, pause, resume, type Upload, useUploads } from "./upload";

const PAGE = 500;
const KINDS: Partial<Record<Entry["type"], string>> = {
  share: "a data set of another project; deleting it here removes only the share",
  link: "a link, which is not followed",
  other: "a special file",
};
const IMAGE = /\.(png|jpe?g|gif|webp)$/i;
const COLUMNS = [
  { key: "name", title: "Name", right: false },
  { key: "size", title: "Size", right: true },
  { key: "modified", title: "Modified", right: false },
];

/** Whether the name can be part of an address: not every sequence of bytes can. */
const isText = (entry: Entry): boolean => {
  try {
    return decodeURIComponent(entry.encoded) === entry.name;
  } catch {
    return false;
  }
};

const decode = (encoded: string): string => {
  try {
    return decodeURIComponent(encoded);
  } catch {
    return encoded;
  }
};

/** "rw-r-----" */
const permissions = (mode: number): string =>
  [...mode.toString(8).padStart(3, "0").slice(-3)]
    .map((digit) => "rwx".replace(/./g, (c, i) => (Number(digit) & (4 >> i) ? c : "-")))
    .join("");

/** A directory, read again when `version` changes and when the window gets the focus. */
function useDirectory(api: FileApi, path: string, sort: string, offset: number, version: unknown) {
  const [state, setState] = useState<{ key?: string; value?: Directory; error?: Error }>({});
  const [focused, setFocused] = useState(0);
  const key = `${path} ${sort} ${offset}`;
  useEffect(() => {
    const onFocus = () => setFocused((n) => n + 1);
    addEventListener("focus", onFocus);
    return () => removeEventListener("focus", onFocus);
  }, []);
  useEffect(() => {
    let isCurrent = true;
    api.list(path, sort, offset, PAGE).then(
      (value) => isCurrent && setState({ key, value }),
      (error: Error) => isCurrent && setState({ key, error }),
    );
    return () => {
      isCurrent = false;
    };
  }, [key, version, focused]);
  return state.key === key ? state : {};
}

/** Lines of 16 by 16 pixels. */
const SHAPES = {
  directory: "M1.5 13V3.5H6L7.5 5.5H14.5V13Z",
  share: "M1.5 13V3.5H6L7.5 5.5H14.5V13ZM5 9.25H10.5M8.5 7.25L10.5 9.25L8.5 11.25",
  file: "M3.5 1.5H9.5L12.5 4.5V14.5H3.5ZM9.5 1.5V4.5H12.5",
  link: "M4 12L12 4M6.5 4H12V9.5",
  other: "M8 2.5L13.5 8L8 13.5L2.5 8Z",
};

function Glyph({ type }: { type: Entry["type"] }) {
  return (
    <svg class={`glyph ${type}`} viewBox="0 0 16 16" role="img" aria-label={type}>
      <path d={SHAPES[type]} />
    </svg>
  );
}

function Head({ sort }: { sort: string }) {
  const direction = (key: string) => (sort === key ? "ascending" : sort === `-${key}` ? "descending" : "none");
  const select = (key: string) => {
    const next = sort === key ? `-${key}` : key;
    setParams({ sort: next === "name" ? null : next, offset: null });
  };
  return (
    <thead>
      <tr>
        {COLUMNS.map((c) => (
          <th key={c.key} class={c.right ? "right" : ""} aria-sort={direction(c.key)}>
            <button onClick={() => select(c.key)}>{c.title}</button>
          </th>
        ))}
        <th>
          <span class="hidden">Details</span>
        </th>
      </tr>
    </thead>
  );
}

interface RowProps {
  entry: Entry;
  now: number;
  isOpen: boolean;
  href: string; // of a directory
  onOpen: () => void;
}

function Row({ entry, now, isOpen, href, onOpen }: RowProps) {
  const time = entry.modified ? new Date(entry.modified) : null;
  return (
    <tr class={isOpen ? "open" : ""}>
      <td class="name">
        <Glyph type={entry.type} />
        {(entry.type === "directory" || entry.type === "share") && isText(entry) ? (
          <a href={href}>{entry.name}</a>
        ) : entry.type === "file" ? (
          <button class="link" onClick={onOpen}>
            {entry.name}
          </button>
        ) : (
          entry.name
        )}
      </td>
      <td class="right">{entry.type === "file" ? size(entry.size ?? 0) : ""}</td>
      <td title={time?.toLocaleString()}>{time && age(time.toISOString(), now)}</td>
      <td class="right">
        <button class="link" onClick={onOpen} aria-label={`Details of ${entry.name}`} aria-expanded={isOpen}>
          ⋯
        </button>
      </td>
    </tr>
  );
}

function Pages({ offset, total }: { offset: number; total: number }) {
  if (total <= PAGE) return null;
  const page = (next: number) => setParams({ offset: next > 0 ? String(next) : null });
  return (
    <nav class="pages" aria-label="Pages of files">
      <button disabled={offset === 0} onClick={() => page(offset - PAGE)}>
        Previous
      </button>
      <span>
        {count(offset + 1)} to {count(Math.min(offset + PAGE, total))} of {count(total)}
      </span>
      <button disabled={offset + PAGE >= total} onClick={() => page(offset + PAGE)}>
        Next
      </button>
    </nav>
  );
}

/** The directories above, as links; also the heading of the content below. */
function Path({ level: Heading, names, href }: { level: "h1" | "h2"; names: string[]; href: (names: string[]) => string }) {
  return (
    <nav class="path" aria-label="Path">
      <Heading>
        {["Files", ...names].map((name, i) =>
          i === names.length ? (
            <span key={i} aria-current="page">
              {name}
            </span>
          ) : (
            <span key={i}>
              <a href={href(names.slice(0, i))}>{name}</a>
              <span class="dim"> / </span>
            </span>
          ),
        )}
      </Heading>
    </nav>
  );
}

// ---- one entry ---------------------------------------------------------------------------------------------------------

/** A form with one input, shown until it is submitted or canceled. */
function InlineForm(props: { label: string; start: string; action: string; onUse: (text: string) => Promise<void>; onEnd: () => void }) {
  const [text, setText] = useState(props.start);
  const [error, setError] = useState<Error>();
  const submit = (event: Event) => {
    event.preventDefault();
    props.onUse(text.trim()).then(props.onEnd, setError);
  };
  return (
    <form class="ask" onSubmit={submit} onKeyDown={(e) => e.key === "Escape" && props.onEnd()}>
      <label>
        {props.label}{" "}
        <input value={text} onInput={(e) => setText(e.currentTarget.value)} ref={(input) => void (text === props.start && input?.focus())} />
      </label>
      <button disabled={!text.trim()}>{props.action}</button>
      <button type="button" onClick={props.onEnd}>
        Cancel
      </button>
      <Failure error={error} />
    </form>
  );
}

function Move({ path, onEnd }: { path: string; onEnd: (moved: boolean) => void }) {
  const [taken, setTaken] = useState<string>();
  const move = async (text: string) => {
    const target = encodePath(text.split("/").filter(Boolean));
    try {
      await moveFile(path, target, taken === target);
      onEnd(true);
    } catch (error) {
      setTaken(error instanceof Refused && error.status === 409 ? target : undefined);
      throw error;
    }
  };
  return (
    <InlineForm label="New path" start={decode(path)} action={taken ? "Replace" : "Move"} onUse={move} onEnd={() => onEnd(false)} />
  );
}

function Remove({ path, entry, onEnd }: { path: string; entry: Entry; onEnd: (removed: boolean) => void }) {
  const [error, setError] = useState<Error>();
  const isDirectory = entry.type === "directory";
  return (
    <p class="ask">
      Delete {entry.name}
      {isDirectory && " and everything in it"}?{" "}
      <button class="danger" onClick={() => removeFile(path, isDirectory).then(() => onEnd(true), setError)}>
        Delete
      </button>{" "}
      <button onClick={() => onEnd(false)} ref={(button) => button?.focus()}>
        Cancel
      </button>
      <Failure error={error} />
    </p>
  );
}

interface DetailsProps {
  api: FileApi;
  path: string;
  address: string;
  entry: Entry;
  canChange: boolean;
  onClose: () => void;
  onChange: () => void;
}

function Details({ api, path, address, entry, canChange, onClose, onChange }: DetailsProps) {
  const [asks, setAsks] = useState<"move" | "remove">();
  const heading = useRef<HTMLHeadingElement>(null);
  const end = (isChanged: boolean) => {
    setAsks(undefined);
    if (isChanged) onChange();
  };
  useEffect(() => {
    setAsks(undefined);
    heading.current?.focus();
  }, [path]);
  const canRead = entry.type === "file" || entry.type === "directory";
  return (
    <aside class="details" aria-label={`Details of ${entry.name}`} onKeyDown={(e) => e.key === "Escape" && onClose()}>
      <header class="bar">
        <h2 ref={heading} tabIndex={-1}>
          {entry.name}
        </h2>
        <button class="link close" onClick={onClose} aria-label="Close details">
          ✕
        </button>
      </header>
      <dl class="facts">
        <Fact name="Size">{entry.type === "file" && `${size(entry.size ?? 0)}${(entry.size ?? 0) >= 1024 ? ` (${count(entry.size!)} bytes)` : ""}`}</Fact>
        <Fact name="Modified">{entry.modified && new Date(entry.modified).toLocaleString()}</Fact>
        <Fact name="Owner">{entry.owner && `${entry.owner} ${permissions(entry.mode ?? 0)}`}</Fact>
        <Fact name="Kind">{KINDS[entry.type]}</Fact>
        <Fact name="Path">
          <Copy key={address} text={address} />
        </Fact>
      </dl>
      <p class="bar">
        {canRead && (
          <a class="button" href={api.content(path)} download>
            {entry.type === "directory" ? "Download as tar" : "Download"}
          </a>
        )}
        {canChange && entry.type === "directory" && (
          <a class="button" href={`${to("shares")}?path=${path}`}>
            Share…
          </a>
        )}
        {canChange && <button onClick={() => setAsks("move")}>Rename or move…</button>}
        {canChange && <button onClick={() => setAsks("remove")}>Delete…</button>}
      </p>
      {asks === "move" && <Move key={path} path={path} onEnd={end} />}
      {asks === "remove" && <Remove path={path} entry={entry} onEnd={end} />}
      {entry.type === "file" && <Preview api={api} path={path} />}
    </aside>
  );
}

// ---- uploads -----------------------------------------------------------------------------------------------------------

function UploadRow({ upload: u }: { upload: Upload }) {
  const percent = u.file.size ? Math.floor((100 * u.sent) / u.file.size) : 100;
  const text = { waiting: "waiting", running: `${percent}%`, paused: `paused at ${percent}%`, exists: "", failed: "", done: "done" }[u.state];
  return (
    <li>
      <span class="name">{u.name}</span>
      <progress value={u.state === "done" ? 1 : u.sent} max={u.state === "done" ? 1 : Math.max(u.file.size, 1)} aria-label={`Progress of ${u.name}`} />
      <span class="dim">
        {text} {u.state === "running" && `of ${size(u.file.size)}`}
      </span>
      {u.error && <span class="bad">{u.error}</span>}
      {(u.state === "running" || u.state === "waiting") && <button onClick={() => pause(u)}>Pause</button>}
      {(u.state === "paused" || u.state === "failed") && <button onClick={() => resume(u)}>Resume</button>}
      {u.state === "exists" && (
        <button class="danger" onClick={() => resume(u, true)}>
          Replace
        </button>
      )}
      <button onClick={() => dismiss(u)} aria-label={`${u.state === "done" ? "Dismiss" : "Cancel"} ${u.name}`}>
        {u.state === "done" ? "Dismiss" : "Cancel"}
      </button>
    </li>
  );
}

function Uploads({ uploads }: { uploads: Upload[] }) {
  if (uploads.length === 0) return null;
  return (
    <section class="uploads" aria-label="Uploads">
      <ul>
        {uploads.map((u) => (
          <UploadRow key={u.id} upload={u} />
        ))}
      </ul>
    </section>
  );
}

/** Files can be dropped anywhere on it. */
function DropZone({ directory, children }: { directory: string; children: ComponentChildren }) {
  const [isOver, setOver] = useState(false);
  const [note, setNote] = useState("");
  const drop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const items = [...(event.dataTransfer?.items ?? [])].filter((item) => item.kind === "file");
    const folders = items.filter((item) => item.webkitGetAsEntry()?.isDirectory);
    const files = items.filter((item) => !folders.includes(item)).map((item) => item.getAsFile());
    setNote(folders.length ? "Folders cannot be uploaded: create a folder, open it, and drop the files there." : "");
    addUploads(directory, files.filter((file): file is File => file !== null));
  };
  const over = (event: DragEvent) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    setOver(true);
  };
  return (
    <main class={isOver ? "files drop" : "files"} onDragOver={over} onDragLeave={() => setOver(false)} onDrop={drop}>
      {note && <p role="alert">{note}</p>}
      {children}
    </main>
  );
}

// ---- the view ----------------------------------------------------------------------------------------------------------

function Actions({ directory, address, onChange }: { directory: string; address?: string; onChange: () => void }) {
  const [asks, setAsks] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const choose = (event: Event) => {
    const chosen = event.currentTarget as HTMLInputElement;
    addUploads(directory, chosen.files ?? []);
    chosen.value = ""; // so that the same file can be chosen again
  };
  const make = async (name: string) => {
    await makeFolder(join(directory, encodePath(name.split("/").filter(Boolean))));
    onChange();
  };
  return (
    <>
      <p class="bar">
        <button onClick={() => input.current?.click()}>Upload…</button>
        <input ref={input} type="file" multiple hidden onChange={choose} aria-label="Files to upload" />
        <button onClick={() => setAsks(true)}>New folder…</button>
        <a class="button" href={projectFiles.content(directory)} download>
          Download as tar
        </a>
        <span class="dim drop-hint">Files can be dropped here.</span>
        {address && <Copy text={address} />}
      </p>
      {asks && <InlineForm label="Name of the new folder" start="" action="Create" onUse={make} onEnd={() => setAsks(false)} />}
    </>
  );
}

interface BrowserProps {
  api: FileApi;
  names: string[]; // of the directory
  version: unknown;
  href: (names: string[]) => string;
  canChange: boolean;
  onChange: () => void;
  children?: (directory: Directory | undefined) => ComponentChildren;
}

/** The entries of a directory, and details of the one that the address selects. */
function Browser({ api, names, version, href, canChange, onChange, children }: BrowserProps) {
  const { params } = useAddress();
  const now = useNow();
  const sort = params.get("sort") ?? "name";
  const offset = Math.max(0, Number(params.get("offset") ?? 0) || 0);
  const directory = encodePath(names);
  const { value, error } = useDirectory(api, directory, sort, offset, version);
  const open = value?.entries.find((e) => e.encoded === params.get("open"));
  const select = (entry: Entry | null) => setParams({ open: entry?.encoded ?? null });
  return (
    <>
      {children?.(value)}
      <Failure error={error} />
      {value && value.count === 0 && <p class="dim">This folder is empty.</p>}
      {value && value.count > 0 && (
        <div class={open ? "split" : ""}>
          <Scroll label="Entries">
            <table class="entries">
              <Head sort={sort} />
              <tbody>
                {value.entries.map((entry) => (
                  <Row
                    key={entry.encoded}
                    entry={entry}
                    now={now}
                    isOpen={entry === open}
                    href={isText(entry) ? href([...names, entry.name]) : ""}
                    onOpen={() => select(entry === open ? null : entry)}
                  />
                ))}
              </tbody>
            </table>
            <Pages offset={offset} total={value.count} />
          </Scroll>
          {open && (
            <Details
              api={api}
              path={join(directory, open.encoded)}
              address={`${value.address}/${open.name}`}
              entry={open}
              canChange={canChange}
              onClose={() => select(null)}
              onChange={() => {
                select(null);
                onChange();
              }}
            />
          )}
        </div>
      )}
    </>
  );
}

export function Files({ names }: { names: string[] }) {
  useTitle(["Files", ...names].join(" / "));
  const { uploads, completed } = useUploads();
  const [changes, setChanges] = useState(0);
  const directory = encodePath(names);
  const href = (path: string[]) => to(join("files", encodePath(path)));
  const change = () => setChanges((n) => n + 1);
  return (
    <DropZone directory={directory}>
      <Path level="h1" names={names} href={href} />
      <Browser api={projectFiles} names={names} version={`${completed} ${changes}`} href={href} canChange onChange={change}>
        {(value) => (
          <>
            <Actions key={directory} directory={directory} address={value?.address} onChange={change} />
            <Uploads uploads={uploads} />
          </>
        )}
      </Browser>
    </DropZone>
  );
}

/** The files of a trial, with its images; the directory that is shown is in the parameter `folder`. */
export function TrialFiles({ run, trial }: { run: string; trial: string }) {
  const { params } = useAddress();
  const names = (params.get("folder") ?? "").split("/").filter(Boolean);
  const api = trialFiles(run, trial);
  const href = (path: string[]) => `${location.pathname}?folder=${encodePath(path)}`;
  return (
    <section class="files">
      <Path level="h2" names={names} href={href} />
      <Browser api={api} names={names} version="" href={href} canChange={false} onChange={() => undefined}>
        {(value) => <Images api={api} directory={encodePath(names)} entries={value?.entries ?? []} />}
      </Browser>
    </section>
  );
}

const IMAGES_MAX = 50;

function Images({ api, directory, entries }: { api: FileApi; directory: string; entries: Entry[] }) {
  const images = entries.filter((e) => e.type === "file" && IMAGE.test(e.name)).slice(0, IMAGES_MAX);
  if (images.length === 0) return null;
  return (
    <div class="images">
      {images.map((e) => (
        <figure key={e.encoded}>
          <img src={api.content(join(directory, e.encoded))} alt={e.name} loading="lazy" />
          <figcaption>{e.name}</figcaption>
        </figure>
      ))}
    </div>
  );
}

