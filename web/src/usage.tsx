// SPDX-License-Identifier: Apache-2.0
// What the attempts of a trial used over time.
import type { Attempt, AttemptUsage } from "./api";
import { duration, size } from "./format";
import { SpanPlot } from "./span_plot";
import "./activity.css";

const LEFT = 70;

/** The cores that were busy since the point before each. */
export function cores(usage: AttemptUsage): number[] {
  return usage.cpu_ms.map((cpu, i) => {
    const before = i ? usage.cpu_ms[i - 1]! : 0;
    const since = i ? usage.time_ms[i - 1]! : 0;
    return (cpu - before) / Math.max(1, usage.time_ms[i]! - since);
  });
}

const number = (x: number) => String(Number(x.toPrecision(3)));

function One({ attempt, usage, several }: { attempt: Attempt; usage: AttemptUsage; several: boolean }) {
  const to = Math.max(usage.time_ms[usage.time_ms.length - 1] ?? 1, 1);
  const busy = cores(usage);
  const common = { time: usage.time_ms, from: 0, to, left: LEFT, group: `attempt ${attempt.attempt}` };
  const name = several ? ` of attempt ${attempt.attempt}` : "";
  const memoryLabel = `Memory${name}: up to ${size(Math.max(...usage.memory))}`;
  const cpuLabel = `CPU${name}: up to ${number(Math.max(...busy))} cores`;
  return (
    <>
      <h3>{memoryLabel}</h3>
      <SpanPlot {...common} label={`${memoryLabel}, over ${duration(to)}`} text={size} isBytes lines={[{ label: "memory", color: "accent", values: usage.memory }]} />
      <h3>{cpuLabel}</h3>
      <SpanPlot {...common} label={`${cpuLabel}, over ${duration(to)}`} text={number} lines={[{ label: "cores", color: "good", values: busy }]} />
      {usage.gpu_use && usage.gpu_memory && (
        <>
          <h3>
            GPU{name}: up to {size(Math.max(...usage.gpu_memory))}
          </h3>
          <SpanPlot {...common} label={`GPU memory${name}`} text={size} isBytes lines={[{ label: "GPU memory", color: "wait", values: usage.gpu_memory }]} />
          <h3>
            GPUs in use{name}: up to {number(Math.max(...usage.gpu_use))}
          </h3>
          <SpanPlot {...common} label={`GPUs in use${name}`} text={number} lines={[{ label: "GPUs", color: "wait", values: usage.gpu_use }]} />
        </>
      )}
    </>
  );
}

export function Usage({ attempts }: { attempts: Attempt[] }) {
  const measured = attempts.filter((a) => a.usage && a.usage.time_ms.length > 0);
  if (measured.length === 0) return null;
  return (
    <section class="usage">
      <h2>Memory and CPU</h2>
      {measured.map((a) => (
        <One key={a.attempt} attempt={a} usage={a.usage!} several={attempts.length > 1} />
      ))}
    </section>
  );
}
