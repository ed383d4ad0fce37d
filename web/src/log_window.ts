// SPDX-License-Identifier: Apache-2.0
// A window onto the output of a trial, which may be a gigabyte: only the part around the visible lines is loaded.
import { followOutput, readOutput, Refused, searchOutput } from "./api";
import { whenVisible } from "./live";
import { Screen } from "./terminal";

const CHUNK = 256 << 10; // bytes that are read at a time
const WINDOW = 8 * CHUNK; // and kept
const RETRY_MS = 2000;

interface Piece {
  offset: number;
  bytes: Uint8Array;
}

export class LogWindow {
  screen = new Screen();
  size: number;
  isEnded = false; // nothing is added to the output any more
  private pieces: Piece[] = [];
  private decoder = new TextDecoder();
  private busy = false;
  private abort = new AbortController();

  constructor(
    readonly run: string,
    readonly trial: string,
    readonly stream: string,
    size: number,
    private changed: () => void,
    private failed: (error: Error) => void,
  ) {
    this.size = size;
  }

  get start(): number {
    return this.pieces[0]?.offset ?? 0;
  }

  get end(): number {
    const last = this.pieces[this.pieces.length - 1];
    return last ? last.offset + last.bytes.length : 0;
  }

  close(): void {
    this.abort.abort();
  }

  /** Shows the end, and what is added to it from then on. */
  async follow(): Promise<void> {
    this.restart();
    const { signal } = this.abort;
    const start = Math.max(0, this.size - CHUNK);
    try {
      this.rebuild([]);
      while (!(await this.followFrom(this.pieces.length ? this.end : start, signal))) await whenVisible();
      this.isEnded = true;
      this.changed();
    } catch (error) {
      if (!signal.aborted) this.failed(error as Error);
    }
  }

  /** Appends until the output has ended (true), or this tab is hidden or its connection breaks (false). */
  private async followFrom(start: number, signal: AbortSignal): Promise<boolean> {
    const connection = new AbortController();
    const cut = () => connection.abort();
    const cutIfHidden = () => document.hidden && cut();
    let offset = start;
    signal.throwIfAborted();
    signal.addEventListener("abort", cut);
    document.addEventListener("visibilitychange", cutIfHidden);
    try {
      for await (const bytes of followOutput(this.run, this.trial, this.stream, offset, connection.signal)) {
        this.append({ offset, bytes });
        offset += bytes.length;
      }
      return true;
    } catch (error) {
      if (signal.aborted || error instanceof Refused) throw error;
      if (!connection.signal.aborted) await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      return false;
    } finally {
      signal.removeEventListener("abort", cut);
      document.removeEventListener("visibilitychange", cutIfHidden);
    }
  }

  /** Shows the part around an offset; returns its line. */
  async show(offset: number): Promise<number> {
    this.restart();
    const from = Math.max(0, offset - CHUNK / 2);
    const bytes = await readOutput(this.run, this.trial, this.stream, from, CHUNK);
    const before = bytes.subarray(0, offset - from);
    this.rebuild([{ offset: from, bytes: before }]);
    const line = this.screen.y;
    this.rebuild([{ offset: from, bytes }]);
    return line;
  }

  /** Reads what is before the window. Returns the number of lines that were added at its beginning. */
  async readBefore(): Promise<number> {
    if (this.busy || this.start === 0) return 0;
    return this.locked(async () => {
      const from = Math.max(0, this.start - CHUNK);
      const bytes = await readOutput(this.run, this.trial, this.stream, from, this.start - from);
      const lines = this.screen.length;
      const pieces = [{ offset: from, bytes }, ...this.pieces];
      this.rebuild(pieces);
      const added = this.screen.length - lines;
      this.trim("end");
      return added;
    });
  }

  /** Reads what is after the window. Returns the number of lines that were removed at its beginning. */
  async readAfter(): Promise<number> {
    if (this.busy || this.end >= this.size) return 0;
    return this.locked(async () => {
      const bytes = await readOutput(this.run, this.trial, this.stream, this.end, CHUNK);
      if (!bytes.length) return 0;
      this.append({ offset: this.end, bytes }, false);
      return this.trim("start");
    });
  }

  /** The offset of the next text, or of the next error without one; null: it was not found. */
  async find(text: string | null, offset: number, backward: boolean, stream = this.stream): Promise<number | null> {
    for (;;) {
      const { found, next } = await searchOutput(this.run, this.trial, stream, text, offset, backward);
      if (found !== null || next === null) return found;
      offset = next;
    }
  }

  private restart(): void {
    this.abort.abort();
    this.abort = new AbortController();
  }

  private async locked(work: () => Promise<number>): Promise<number> {
    const { signal } = this.abort;
    this.busy = true;
    try {
      const result = await work();
      return signal.aborted ? 0 : result;
    } catch (error) {
      this.failed(error as Error);
      return 0;
    } finally {
      this.busy = false;
    }
  }

  private append(piece: Piece, trims = true): void {
    if (!this.pieces.length) {
      this.rebuild([piece]);
    } else {
      this.pieces.push(piece);
      this.screen.write(this.decoder.decode(piece.bytes, { stream: true }));
    }
    this.size = Math.max(this.size, this.end);
    if (trims && this.end - this.start > 2 * WINDOW) this.trim("start");
    this.changed();
  }

  /** Keeps a window's worth of bytes. Returns the number of lines that were removed at the beginning. */
  private trim(where: "start" | "end"): number {
    const pieces = [...this.pieces];
    while (pieces.length > 1 && pieces.reduce((n, p) => n + p.bytes.length, 0) > WINDOW) {
      if (where === "start") pieces.shift();
      else pieces.pop();
    }
    if (pieces.length === this.pieces.length) return 0;
    const lines = this.screen.length;
    this.rebuild(pieces);
    return where === "start" ? lines - this.screen.length : 0;
  }

  private rebuild(pieces: Piece[]): void {
    this.pieces = pieces;
    this.decoder = new TextDecoder();
    this.screen = new Screen();
    pieces.forEach((p, i) => {
      // The window starts with a whole line, unless that is longer than the window.
      const first = i === 0 && p.offset > 0 ? p.bytes.indexOf(10) + 1 : 0;
      this.screen.write(this.decoder.decode(p.bytes.subarray(first), { stream: true }));
    });
    this.changed();
  }
}
