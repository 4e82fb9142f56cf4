// Errors of calls: classes with the host's names, for programs to catch. `BELOW` is also in
// FAILURES of guest/python/failures.py.

const { create, defineProperty } = Object;
const { apply } = Reflect;
const { indexOf, slice, startsWith } = String.prototype;
const { stringify } = JSON;

/** Position of a call. */
export interface Site {
  stack: string;
}

/**
 * Base of all errors of calls. `code` is stable; subclasses that the program defines have the code of a failed program.
 */
export class CorralError extends Error {
  code = "program_failed";
  /** Seconds until a call over the rate limit would be allowed. */
  declare readonly retryAfterSeconds?: number;
}

type FailureClass = typeof CorralError;

/** Subclasses by the name of their base. */
const BELOW: [base: string, names: string[]][] = [
  ["CorralError", ["ToolError", "AccessDenied", "BridgeError", "CallBudgetExceeded", "ExecutionCancelled"]],
  ["ToolError", ["ToolNotFound", "InvalidArguments", "ToolFailed", "InvalidToolOutput", "UncertainCall"]],
  ["AccessDenied", ["InvalidToken", "ExecutionEnded", "ScopeDenied", "PolicyDenied", "RateLimited", "ApprovalDenied", "EgressBlocked"]],
  ["BridgeError", ["MessageTooLarge", "MalformedMessage", "HostLost"]],
];
/** Bases of classes that a host adds. */
const BY_CODE: Record<string, string> = { __proto__: null as never, tool_error: "ToolError", access_denied: "AccessDenied" };

/** All known classes, by name. */
export const failureClasses = create(null) as Record<string, FailureClass>;
failureClasses.CorralError = titled(CorralError, "CorralError");
for (const [base, names] of BELOW) for (const name of names) derive(base, name);

function derive(base: string, name: string): FailureClass {
  return (failureClasses[name] = titled(class extends failureClasses[base]! {}, name));
}

function titled(failure: FailureClass, name: string): FailureClass {
  const title = { __proto__: null, value: name, writable: true, configurable: true } as PropertyDescriptor;
  defineProperty(failure, "name", title);
  defineProperty(failure.prototype, "name", title);
  return failure;
}

const { captureStackTrace } = Error;

/** How an engine captures stacks, and reads the frames of one, each after a line end. */
let stacks = {
  capture: (target: Site, boundary: (...args: never[]) => unknown): void => captureStackTrace(target, boundary),
  frames(site: Site): string {
    const start = apply(indexOf, site.stack, ["\n"]) as number;
    return start < 0 ? "" : (apply(slice, site.stack, [start]) as string);
  },
};

/** Replaces how stacks of calls are captured: most are never read. */
export function captureBy(engine: typeof stacks): void {
  stacks = engine;
}

/** Returns the place that calls `boundary`. */
export function siteOf(boundary: (...args: never[]) => unknown): Site {
  const site = { stack: "" };
  stacks.capture(site, boundary);
  return site;
}

/** Returns the frames of a place, each after a line end. */
export const framesOf = (site: Site): string => stacks.frames(site);

/** Makes the error of a call, for the program to catch. Its stack shows the call, not the delivery of the reply. */
export function callFailure(code: string, name: string, message: string, site: Site, retryAfterSeconds?: number): CorralError {
  const failure = new (failureClasses[name] ?? derive(BY_CODE[code] ?? "CorralError", name))(message);
  failure.code = code;
  if (retryAfterSeconds !== undefined) {
    defineProperty(failure, "retryAfterSeconds", { value: retryAfterSeconds, configurable: true, writable: true, enumerable: true });
  }
  const value = `${name}: ${message}${framesOf(site)}`;
  defineProperty(failure, "stack", { value, configurable: true, writable: true, enumerable: false });
  return failure;
}

/** Returns the message for a module that is not available. One of a skill has its own remedy. */
export function unavailable(specifier: string, reason: string): string {
  const isOfSkill = apply(startsWith, specifier, ["skills/"]) || apply(startsWith, specifier, ["/root/skills/"]);
  return `module ${stringify(specifier)} is not available: ${isOfSkill ? OF_SKILL : reason}`;
}

const OF_SKILL = "programs in TypeScript can import modules of a skill only if the host sets packages too: Corral(skills=[...], packages=NpmPackages(...))";
