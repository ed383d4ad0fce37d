// SPDX-License-Identifier: Apache-2.0
// A canvas as wide as its container, sharp on every screen.
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";

interface Props {
  height: number;
  label: string;
  /** Draws everything. It is called after each render, and when the size changes. */
  draw: (c: CanvasRenderingContext2D, width: number, height: number) => void;
  onPointerDown?: (e: PointerEvent) => void;
  onPointerMove?: (e: PointerEvent) => void;
  onPointerUp?: (e: PointerEvent) => void;
  onPointerLeave?: (e: PointerEvent) => void;
  children?: ComponentChildren;
}

export function Canvas({ height, label, draw, children, ...events }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const box = canvas.current!.parentElement!;
    const observer = new ResizeObserver(() => setWidth(box.clientWidth));
    setWidth(box.clientWidth);
    observer.observe(box);
    return () => observer.disconnect();
  }, []);
  useEffect(() => {
    const element = canvas.current!;
    const context = element.getContext("2d");
    if (!context || !width) return;
    const ratio = devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    element.style.height = `${height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, width, height);
    context.font = `12px ${getComputedStyle(document.documentElement).fontFamily}`;
    draw(context, width, height);
  });
  return (
    <div class="canvas">
      <canvas ref={canvas} role="img" aria-label={label} {...events} />
      {children}
    </div>
  );
}

/** Where the pointer is on the canvas. */
export function pointAt(e: PointerEvent): { x: number; y: number } {
  const box = (e.currentTarget as Element).getBoundingClientRect();
  return { x: e.clientX - box.left, y: e.clientY - box.top };
}

/** Text that is cut to a width. */
export function cutText(c: CanvasRenderingContext2D, text: string, width: number): string {
  if (c.measureText(text).width <= width) return text;
  let n = text.length;
  while (n > 1 && c.measureText(`${text.slice(0, n)}…`).width > width) n--;
  return `${text.slice(0, n)}…`;
}
