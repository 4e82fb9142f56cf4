/** The server's data, and requests for it. Addresses are relative to where the app is mounted. */

export interface Approval {
  state: "waiting" | "approved" | "denied" | "decided" | "expired";
  at: number;
  until?: number;
  input?: unknown;
  shown?: string | null;
  description?: string;
  readOnly?: boolean;
  by?: string | null;
  /** Of a denial; or, while it waits, why a call that may have taken effect has to be decided. */
  reason?: string | null;
  doubts?: Doubt[];
  /** Tools of others' texts that the model has read. */
  seen?: string[];
  /** Of all that is shown; an approval has it, so that it is of no other call. */
  digest?: string;
}

/** A reason of the policy to ask. */
export interface Doubt {
  text: string;
  parameter: string | null;
  destination: string | null;
  origin: string | null;
}

export interface Call {
  n: number;
  tool: string;
  input: unknown;
  started: number;
  duration?: number;
  output?: unknown;
  error?: { code: string; message: string };
  approval?: Approval;
  progress?: { done: number; total: number | null; message: string | null };
}

/** All calls of a tool that was called often. */
export interface Group {
  tool: string;
  count: number;
  failed: number;
  /** Seconds; null before one has ended. */
  shortest: number | null;
  longest: number;
  started: number;
  /** Calls that began in each span of so many seconds. */
  seconds: number;
  density: number[];
}

export interface Execution {
  id: string;
  toolCallId: string | null;
  /** First words of the conversation, and the message that the program answers. */
  title?: string;
  question?: string;
  session?: string | null;
  status: string;
  language: "typescript" | "python";
  source: string;
  began: number;
  duration?: number;
  check?: { verdict: "passed" | "rejected" | "unchecked"; reason: string | null };
  checked?: boolean;
  containment?: { kind: string; strength: string } | null;
  calls: Call[];
  groups?: Group[];
  callCount: number;
  logs: [level: string, text: string, at: number][];
  logsDropped: number;
  value?: unknown;
  error?: { code: string; name: string; message: string; line: number | null };
  diagnostics?: { severity: string; message: string; line: number | null }[];
  truncated?: string[];
  files?: { created: string[]; changed: string[]; deleted: string[] };
  images?: string[];
  whole?: boolean;
  /** True if it is in a ledger and does not run. */
  recorded?: boolean;
}

export interface ConversationInfo {
  id: string;
  title: string;
  updated: number;
  running: boolean;
  /** True if a call of it waits for the user's approval. */
  waiting: boolean;
}

export const root = new URL(/* @vite-ignore */ "..", import.meta.url).pathname;

const SAME_CLOCK_MS = 2_000;
let behind = 0;

/** Milliseconds since the epoch by the server's clock; its answers state the second. */
export const serverNow = () => Date.now() + behind;

/** The server did not answer. Each browser has its own words for that. */
export class Unreachable extends Error {
  override message = "The server does not answer.";
}

export async function request<T>(path: string, options: RequestInit = {}): Promise<T> {
  const response = await fetch(root + path, options).catch(() => {
    throw new Unreachable();
  });
  const ahead = Date.parse(response.headers.get("date") ?? "") - Date.now();
  if (!Number.isNaN(ahead)) behind = Math.abs(ahead) < SAME_CLOCK_MS ? 0 : ahead;
  if (response.status === 204) return undefined as T;
  const body = await response.json();
  if (!response.ok) throw new Error(body.error ?? `status ${response.status}`);
  return body as T;
}

export const post = <T,>(path: string, body: unknown): Promise<T> =>
  request<T>(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
