// SPDX-License-Identifier: Apache-2.0
// Text as a terminal shows it: colors, lines that are overwritten (progress bars), and cursors that move up.

/** A piece of a line in one style: classes of the style sheet, and colors beyond the sixteen of the palette. */
export interface Span {
  text: string;
  style: string; // "fg1 bold"
  color: string; // "#ff8700"; "": of the style
  back: string;
}

const PLAIN: Span = { text: "", style: "", color: "", back: "" };
const TOKEN =
  /[^\x00-\x1f\x7f]+|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-Z\\^-~]|[\x00-\x1a\x1c-\x1f\x7f]/g;
/** An escape sequence whose end has not arrived yet. */
const UNFINISHED = /\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]{0,1000}\x1b?|[ -/]*)?$/;
const COLUMNS_MAX = 10000;

/** A line: a text in the plain style, or one cell for each character. */
type Row = { text: string } | { cells: Span[] };

function cellsOf(row: Row): Span[] {
  return "cells" in row ? row.cells : Array.from(row.text, (text) => ({ ...PLAIN, text }));
}

/** One of the 256 colors that terminals number; the first sixteen are of the style sheet. */
function paletteColor(n: number): string {
  if (n >= 232) return `rgb(${Array(3).fill(8 + (n - 232) * 10).join(",")})`;
  const level = (x: number) => (x ? 55 + x * 40 : 0);
  const i = n - 16;
  return `rgb(${level(Math.floor(i / 36))},${level(Math.floor(i / 6) % 6)},${level(i % 6)})`;
}

class Style {
  private names = new Set<string>();
  private colors = { fg: "", bg: "" };

  get span(): Span {
    return { text: "", style: [...this.names].join(" "), color: this.colors.fg, back: this.colors.bg };
  }

  /** The parameters of "\x1b[…m". */
  set(codes: number[]): void {
    for (let i = 0; i < codes.length; i++) {
      const code = codes[i]!;
      if (code === 0) {
        this.names.clear();
        this.colors = { fg: "", bg: "" };
      } else if (code === 1 || code === 2 || code === 3 || code === 4 || code === 7) {
        this.names.add(["", "bold", "faint", "italic", "underlined", "", "", "inverse"][code]!);
      } else if (code === 22) {
        this.names.delete("bold");
        this.names.delete("faint");
      } else if (code === 23 || code === 24 || code === 27) {
        this.names.delete({ 23: "italic", 24: "underlined", 27: "inverse" }[code]!);
      } else if (code === 38 || code === 48) {
        i += this.extended(code === 38 ? "fg" : "bg", codes.slice(i + 1));
      } else {
        this.paint(code);
      }
    }
  }

  private clear(which: "fg" | "bg"): void {
    for (const name of this.names) if (name.startsWith(which)) this.names.delete(name);
    this.colors[which] = "";
  }

  private paint(code: number): void {
    const which = [3, 9].includes(Math.floor(code / 10)) ? "fg" : [4, 10].includes(Math.floor(code / 10)) ? "bg" : null;
    if (!which || code % 10 === 8) return;
    this.clear(which);
    if (code % 10 < 8) this.names.add(`${which}${(code % 10) + (code >= 90 ? 8 : 0)}`);
  }

  /** "5;N" or "2;R;G;B"; returns how many parameters that were. */
  private extended(which: "fg" | "bg", codes: number[]): number {
    this.clear(which);
    if (codes[0] === 5) {
      const n = Math.min(255, codes[1] ?? 0);
      if (n < 16) this.names.add(`${which}${n}`);
      else this.colors[which] = paletteColor(n);
      return 2;
    }
    if (codes[0] === 2) {
      this.colors[which] = `rgb(${codes.slice(1, 4).map((x) => Math.min(255, x)).join(",")})`;
      return 4;
    }
    return 1;
  }
}

export class Screen {
  private rows: Row[] = [{ text: "" }];
  private x = 0;
  private rest = "";
  private style = new Style();
  private pen: Span = PLAIN;
  private _y = 0;

  get y(): number {
    return this._y;
  }

  /** Lines that have something in them, or another one below. */
  get length(): number {
    const last = this.rows[this.rows.length - 1]!;
    return this.rows.length - ("text" in last && last.text === "" ? 1 : 0);
  }

  line(i: number): Span[] {
    const row = this.rows[i];
    if (!row) return [];
    if ("text" in row) return [{ ...PLAIN, text: row.text }];
    const spans: Span[] = [];
    for (const cell of row.cells) {
      const last = spans[spans.length - 1];
      if (last && last.style === cell.style && last.color === cell.color && last.back === cell.back) last.text += cell.text;
      else spans.push({ ...cell });
    }
    return spans;
  }

  write(text: string): void {
    text = this.rest + text;
    this.rest = UNFINISHED.exec(text)?.[0] ?? "";
    for (const [token] of text.slice(0, text.length - this.rest.length).matchAll(TOKEN)) {
      if (token >= " " && token[0] !== "\x7f") this.put(token);
      else if (token[0] === "\x1b") this.escape(token);
      else this.control(token);
    }
  }

  private put(text: string): void {
    const row = this.rows[this._y]!;
    if ("text" in row && this.x === row.text.length && this.pen === PLAIN) {
      row.text += text;
      this.x += text.length;
      return;
    }
    const cells = cellsOf(row);
    while (cells.length < this.x) cells.push({ ...PLAIN, text: " " });
    for (const c of text) cells[this.x++] = { ...this.pen, text: c };
    this.rows[this._y] = { cells };
  }

  private control(c: string): void {
    if (c === "\n") {
      this._y++;
      this.x = 0;
      if (this._y === this.rows.length) this.rows.push({ text: "" });
    } else if (c === "\r") {
      this.x = 0;
    } else if (c === "\b") {
      this.x = Math.max(0, this.x - 1);
    } else if (c === "\t") {
      this.put(" ".repeat(8 - (this.x % 8)));
    }
  }

  private escape(token: string): void {
    if (token[1] !== "[") return;
    const codes = token.slice(2, -1).split(";").map((n) => Number.parseInt(n, 10) || 0);
    const n = Math.min(Math.max(1, codes[0]!), COLUMNS_MAX);
    switch (token[token.length - 1]) {
      case "m":
        this.style.set(codes);
        this.pen = this.style.span;
        if (!this.pen.style && !this.pen.color && !this.pen.back) this.pen = PLAIN;
        break;
      case "A":
        this._y = Math.max(0, this._y - n);
        break;
      case "B":
        this._y = Math.min(this.rows.length - 1, this._y + n);
        break;
      case "C":
        this.x = Math.min(COLUMNS_MAX, this.x + n);
        break;
      case "D":
        this.x = Math.max(0, this.x - n);
        break;
      case "G":
        this.x = n - 1;
        break;
      case "K":
        this.erase(codes[0]!);
        break;
    }
  }

  /** In this line: 0 from the cursor on, 1 up to it, 2 all. */
  private erase(how: number): void {
    const cells = cellsOf(this.rows[this._y]!);
    const kept = how === 0 ? cells.slice(0, this.x) : how === 1 ? cells.map((c, i) => (i <= this.x ? { ...PLAIN, text: " " } : c)) : [];
    this.rows[this._y] = kept.some((c) => c.style || c.color || c.back)
      ? { cells: kept }
      : { text: kept.map((c) => c.text).join("") };
  }
}
