// SPDX-License-Identifier: Apache-2.0
// Charts over the time of a run or an attempt, drawn by uPlot, with a common time axis.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { duration } from "./format";

/** A color of the style sheet. */
export const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export interface Line {
  label: string;
  color: string; // its name in the style sheet
  values: (number | null)[];
}

interface Props {
  label: string;
  time: number[]; // ms
  lines: Line[];
  text: (value: number) => string;
  from: number;
  to: number;
  isBytes?: boolean;
  left: number; // width of what is left of the plot, in pixels
  height?: number;
  group?: string; // charts with the same one have a common cursor
  onSelect?: (from: number, to: number) => void;
}

/** Ticks at multiples of a common unit of time. */
function timeSplits(from: number, to: number, count: number): number[] {
  const units = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 144e5, 432e5, 864e5];
  const unit = units.find((u) => (to - from) / u <= count) ?? 864e5 * Math.ceil((to - from) / 864e5 / count);
  const splits: number[] = [];
  for (let at = Math.ceil(from / unit) * unit; at <= to; at += unit) splits.push(at);
  return splits;
}

export function timeText(ms: number, span: number): string {
  if (ms === 0) return "0";
  if (span < 5e3) return `${Number((ms / 1000).toFixed(3))}s`;
  if (ms < 6e4) return `${Math.round(ms / 1000)}s`;
  return duration(ms).replace(/(?<=[hm])00[ms]$/, "");
}

export { timeSplits };

export function SpanPlot(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const axis = { stroke: color("dim"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    const made: uPlot = new uPlot(
      {
        width: element.clientWidth,
        height: props.height ?? 110,
        padding: [8, 12, 0, 0],
        legend: { show: false },
        cursor: {
          y: false,
          drag: { x: !!props.onSelect, y: false, setScale: false },
          ...(props.group ? { sync: { key: props.group } } : {}),
        },
        scales: {
          x: { time: false, range: () => [latest.current.from, latest.current.to] },
          y: { range: (_, low, high) => [Math.min(0, low ?? 0), high > 0 ? high * 1.1 : 1] },
        },
        axes: [
          {
            ...axis,
            size: 26,
            splits: (_, __, min, max) => timeSplits(min, max, Math.max(2, made.width / 110)),
            values: (_, at) => at.map((ms) => timeText(ms, latest.current.to - latest.current.from)),
          },
          { ...axis, size: props.left, splits: (_, __, ___, max) => ySplits(max, latest.current.isBytes), values: (_, at) => at.map((v) => latest.current.text(v)) },
        ],
        series: [
          {},
          ...props.lines.map((line) => ({
            label: line.label,
            stroke: color(line.color),
            fill: `${color(line.color)}1f`,
            width: 1.5,
            points: { show: line.values.length < 3 },
          })),
        ],
        hooks: {
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width < 4) return;
              latest.current.onSelect?.(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      [props.time, ...props.lines.map((l) => l.values)],
      element,
    );
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: made.height }));
    observer.observe(element);
    plot.current = made;
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [props.lines.length, props.left]);
  useEffect(() => {
    plot.current?.setData([props.time, ...props.lines.map((l) => l.values)]);
  }, [props.time, props.from, props.to]);
  return <div ref={box} class="chart" role="img" aria-label={props.label} />;
}

/** Zero and one to three round numbers. */
function ySplits(max: number, isBytes?: boolean): number[] {
  const unit = isBytes ? 1024 ** Math.max(0, Math.floor(Math.log2(max / 2 || 1) / 10)) : 1;
  const raw = max / unit / 3 || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = unit * ([1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw) ?? raw);
  const splits: number[] = [];
  for (let at = 0; at <= max; at += step) splits.push(at);
  return splits;
}
