// `fs` for a program in a session: the host answers each operation while the program waits. There are no streams.

import { type Action, addOperation, type Exports, fileError, homeOf, outside, wholePath, within } from "../file_api.ts";
import { bytesOf } from "../platform/intrinsics.ts";
import { Buffer } from "../platform/buffer.ts";
import type { Mounts } from "../run.ts";

/** Asks the host: `[operation, path, ...arguments]`. */
type Ask = (request: unknown[]) => unknown;
type Kind = "file" | "directory" | "link" | "other";
/** Kind, size, milliseconds of the last change, and inode. */
type Described = [kind: Kind, size: number, modified: number, inode: number];
type Options = { encoding?: unknown; flag?: string; recursive?: boolean; force?: boolean; withFileTypes?: boolean; throwIfNoEntry?: boolean; errorOnExist?: boolean };

interface Opened {
  path: string;
  reads: boolean;
  writes: boolean;
  appends: boolean;
  position: number;
}

const PIECE = 1 << 19;
const LEAST_PIECE = 1024;
/** Bytes of a request beside a piece of a file: its path, of up to 4,095 bytes with escapes. */
const AROUND = 8 << 10;
const constants = { F_OK: 0, X_OK: 1, W_OK: 2, R_OK: 4, COPYFILE_EXCL: 1, O_RDONLY: 0, O_WRONLY: 1, O_RDWR: 2, O_CREAT: 64, O_EXCL: 128, O_TRUNC: 512, O_APPEND: 1024 };
const REFUSED = "chmod chown fchmod fchown futimes lchmod lchown link lutimes readlink symlink utimes";
const STREAMS = ["createReadStream", "createWriteStream", "ReadStream", "WriteStream", "openAsBlob", "opendirSync", "watch", "watchFile"];

class Entry {
  #kind: Kind;

  constructor(kind: Kind) {
    this.#kind = kind;
  }

  isFile(): boolean {
    return this.#kind === "file";
  }

  isDirectory(): boolean {
    return this.#kind === "directory";
  }

  isSymbolicLink(): boolean {
    return this.#kind === "link";
  }

  static {
    for (const name of ["isBlockDevice", "isCharacterDevice", "isFIFO", "isSocket"]) {
      Object.defineProperty(Entry.prototype, name, { value: () => false, writable: true, configurable: true });
    }
  }
}

class Stats extends Entry {
  dev = 0;
  nlink = 1;
  uid = 0;
  gid = 0;
  rdev = 0;
  blksize = 4096;

  constructor([kind, size, mtimeMs, ino]: Described) {
    super(kind);
    const mode = kind === "directory" ? 0o40755 : kind === "link" ? 0o120777 : 0o100644;
    const mtime = new Date(mtimeMs);
    Object.assign(this, { size, ino, mode, mtimeMs, blocks: Math.ceil(size / 512), atimeMs: mtimeMs, ctimeMs: mtimeMs, birthtimeMs: mtimeMs, mtime, atime: mtime, ctime: mtime, birthtime: mtime });
  }
}

class Dirent extends Entry {
  name: string;
  parentPath: string;

  constructor(name: string, parentPath: string, kind: Kind) {
    super(kind);
    this.name = name;
    this.parentPath = parentPath;
  }

  get path(): string {
    return this.parentPath;
  }
}

const badArgument = (name: string, expected: string): Error => Object.assign(new TypeError(`The "${name}" argument must be ${expected}`), { code: "ERR_INVALID_ARG_TYPE" });
const optionsOf = (options: unknown): Options => (typeof options === "string" ? { encoding: options } : (options as Options | null | undefined) ?? {});
const contentOf = (data: unknown, encoding?: unknown): Uint8Array => {
  const bytes = typeof data === "string" ? Buffer.from(data, encoding) : bytesOf(data);
  if (bytes === undefined) throw badArgument("data", "a string, a Buffer, a TypedArray or a DataView");
  return bytes;
};

/** Makes `fs`, with `fs.promises`. */
export function filesOf(ask: Ask, mounts: Mounts, inputBytes: number): Exports {
  const home = homeOf(mounts);
  const room = Math.max(LEAST_PIECE, Math.min(PIECE, ((inputBytes - AROUND) >> 2) * 3));
  const opened = new Map<number, Opened>();
  let lastDescriptor = 2;

  const textOf = (path: unknown): string => {
    const text = path instanceof URL ? decodeURIComponent(path.pathname) : path instanceof Uint8Array ? Buffer.from(path).toString() : path;
    if (typeof text !== "string") throw badArgument("path", "a string, a Buffer or a URL");
    if (text.includes("\0")) throw Object.assign(new TypeError("The \"path\" argument must not contain null bytes"), { code: "ERR_INVALID_ARG_VALUE" });
    return text;
  };
  /** Has the host perform an operation on a path. Its arguments can contain another path, which is whole. */
  const perform = (syscall: string, path: unknown, operation: string, ...rest: unknown[]): unknown => {
    const text = textOf(path);
    const whole = wholePath(text, home);
    if (!mounts.some(([place]) => within(whole, place))) throw outside(syscall, text, mounts);
    const answer = ask([operation, whole, ...rest]) as { value?: unknown; error?: [code: string, text: string, reason: string] };
    if (answer.error === undefined) return answer.value;
    const [code, message, reason] = answer.error;
    if (code === "EACCES") throw outside(syscall, text, mounts);
    throw Object.assign(fileError(code, `${message}, ${syscall}`, text, reason && `: ${reason}`), { syscall });
  };
  const describe = (path: unknown, syscall: string): Described => perform(syscall, path, "stat") as Described;
  const descriptor = (file: unknown, use: "reads" | "writes"): Opened => {
    const found = opened.get(file as number);
    if (found?.[use] !== true) throw Object.assign(new Error(`EBADF: bad file descriptor, ${use === "reads" ? "read" : "write"}`), { code: "EBADF" });
    return found;
  };
  const readPart = (path: unknown, at: number, size: number): Uint8Array => perform("open", path, "read", at, Math.min(size, PIECE)) as Uint8Array;
  const readAll = (path: unknown, at = 0): Buffer => {
    const parts: Uint8Array[] = [];
    let size = 0;
    for (let last = PIECE; last === PIECE; size += last) {
      const part = readPart(path, at + size, PIECE);
      parts.push(part);
      last = part.length;
    }
    return parts.length === 1 ? Buffer.from(parts[0]!.buffer) : Buffer.concat(parts, size);
  };
  /** Writes bytes at an offset, or as a flag such as "w" demands. */
  const write = (path: unknown, bytes: Uint8Array, how: string | number): void => {
    for (let at = 0, next = how; at === 0 || at < bytes.length; at += room) {
      perform("open", path, "write", bytes.subarray(at, at + room), next);
      next = typeof how === "number" ? how + at + room : "a";
    }
  };
  const pathOf = (file: unknown, use: "reads" | "writes"): unknown => (typeof file === "number" ? descriptor(file, use).path : file);
  const writeFile = (file: unknown, data: unknown, options: unknown, usual: string): void => {
    const { encoding, flag = usual } = optionsOf(options);
    const bytes = contentOf(data, encoding);
    if (typeof file === "number") return void writeAt(file, bytes);
    write(file, bytes, flagOf(flag) === "r+" ? 0 : flagOf(flag));
  };
  const writeAt = (file: unknown, bytes: Uint8Array, position?: unknown): number => {
    const into = descriptor(file, "writes");
    const at = typeof position === "number" ? position : into.position;
    write(into.path, bytes, into.appends ? "a" : at);
    if (typeof position !== "number") into.position = at + bytes.length;
    return bytes.length;
  };
  const truncate = (path: unknown, length: unknown = 0): void => {
    const size = Number(length);
    const kept = readAll(path).subarray(0, size);
    write(path, kept, "w");
    if (size > kept.length) write(path, new Uint8Array(size - kept.length), "a");
  };
  const list = (path: unknown, recursive = false): [name: string, kind: Kind][] => perform("scandir", path, "list", recursive) as [string, Kind][];
  const copy = (from: unknown, to: unknown, mode: unknown = 0): void => {
    const bytes = readAll(from);
    write(to, bytes, (mode as number) & constants.COPYFILE_EXCL ? "wx" : "w");
  };

  const operations: Record<string, (...args: any[]) => unknown> = {
    readFileSync(file, options) {
      const bytes = readAll(pathOf(file, "reads"), typeof file === "number" ? descriptor(file, "reads").position : 0);
      const { encoding } = optionsOf(options);
      return encoding === undefined || encoding === null || encoding === "buffer" ? bytes : bytes.toString(encoding as string);
    },
    writeFileSync: (file, data, options) => writeFile(file, data, options, "w"),
    appendFileSync: (file, data, options) => writeFile(file, data, options, "a"),
    existsSync(path) {
      try {
        return describe(path, "stat")[0] !== "link";
      } catch {
        return false;
      }
    },
    statSync(path, options) {
      try {
        const described = describe(path, "stat");
        if (described[0] === "link") throw fileError("ELOOP", "links are not followed, stat", path);
        return new Stats(described);
      } catch (error) {
        if (optionsOf(options).throwIfNoEntry === false && (error as { code?: string }).code === "ENOENT") return undefined;
        throw error;
      }
    },
    lstatSync: (path) => new Stats(describe(path, "lstat")),
    accessSync(path, mode = 0) {
      describe(path, "access");
      const mount = mounts.find(([place]) => within(wholePath(textOf(path), home), place));
      if (mode & constants.W_OK && mount?.[1] === false) throw fileError("EROFS", "read-only file system, access", path);
    },
    readdirSync(path, options) {
      const { withFileTypes, recursive } = optionsOf(options);
      const entries = list(path, recursive === true);
      if (withFileTypes !== true) return entries.map(([name]) => name);
      return entries.map(([name, kind]) => {
        const slash = name.lastIndexOf("/");
        return new Dirent(name.slice(slash + 1), slash < 0 ? textOf(path) : `${textOf(path)}/${name.slice(0, slash)}`, kind);
      });
    },
    mkdirSync: (path, options) => void perform("mkdir", path, "mkdir", optionsOf(options).recursive === true),
    mkdtempSync(prefix) {
      const path = `${textOf(prefix)}${Math.random().toString(36).slice(2, 8).padEnd(6, "x")}`;
      perform("mkdtemp", path, "mkdir", false);
      return path;
    },
    rmdirSync: (path) => void perform("rmdir", path, "remove", "directory"),
    unlinkSync: (path) => void perform("unlink", path, "remove", "file"),
    rmSync(path, options) {
      const { recursive, force } = optionsOf(options);
      try {
        const isFolder = describe(path, "rm")[0] === "directory";
        if (isFolder && recursive !== true) throw Object.assign(fileError("EISDIR", "Path is a directory: rm", path), { code: "ERR_FS_EISDIR" });
        perform("rm", path, "remove", isFolder ? "tree" : "file");
      } catch (error) {
        if (force !== true || (error as { code?: string }).code !== "ENOENT") throw error;
      }
    },
    renameSync(from, to) {
      const target = wholePath(textOf(to), home);
      if (!mounts.some(([place]) => within(target, place))) throw outside("rename", to, mounts);
      perform("rename", from, "rename", target);
    },
    copyFileSync: copy,
    cpSync(from, to, options) {
      const { recursive, force, errorOnExist } = optionsOf(options);
      const mode = force === false && errorOnExist === true ? constants.COPYFILE_EXCL : 0;
      if (describe(from, "cp")[0] !== "directory") return copy(from, to, mode);
      if (recursive !== true) throw Object.assign(fileError("EISDIR", "Recursive option not enabled, cannot copy a directory: cp", from), { code: "ERR_FS_EISDIR" });
      const [source, target] = [wholePath(textOf(from), home), wholePath(textOf(to), home)];
      if (within(target, source)) throw fileError("EINVAL", "cannot copy a directory into itself, cp", from);
      perform("mkdir", target, "mkdir", true);
      for (const [name, kind] of list(source, true)) {
        if (kind === "directory") perform("mkdir", `${target}/${name}`, "mkdir", true);
        else copy(`${source}/${name}`, `${target}/${name}`, mode);
      }
    },
    realpathSync(path) {
      describe(path, "realpath");
      return wholePath(textOf(path), home);
    },
    truncateSync: truncate,
    openSync(path, flags = "r") {
      const flag = flagOf(flags);
      if (flag === "r" || flag === "r+") readPart(path, 0, 0);
      if (flag !== "r") write(path, new Uint8Array(), flag === "r+" ? 0 : flag);
      const reads = flag === "r" || `${flags}`.includes("+") || flags === constants.O_RDWR;
      opened.set(++lastDescriptor, { path: wholePath(textOf(path), home), reads, writes: flag !== "r", appends: flag[0] === "a" && (typeof flags !== "number" || (flags & constants.O_APPEND) > 0), position: 0 });
      return lastDescriptor;
    },
    closeSync(file) {
      if (!opened.delete(file)) throw Object.assign(new Error("EBADF: bad file descriptor, close"), { code: "EBADF" });
    },
    readSync(file, into, offset: unknown = 0, length?: number, position?: unknown) {
      const from = descriptor(file, "reads");
      const settings = (typeof offset === "object" && offset !== null ? offset : { offset, length, position }) as { offset?: number; length?: number; position?: unknown };
      const bytes = bytesOf(into)!.subarray(settings.offset ?? 0);
      const at = typeof settings.position === "number" ? settings.position : from.position;
      const part = readPart(from.path, at, Math.min(settings.length ?? bytes.length, bytes.length));
      bytes.set(part);
      if (typeof settings.position !== "number") from.position = at + part.length;
      return part.length;
    },
    writeSync(file, data, second?: unknown, third?: unknown, position?: unknown) {
      if (typeof data === "string") return writeAt(file, contentOf(data, third), second);
      const settings = (typeof second === "object" && second !== null ? second : { offset: second, length: third, position }) as { offset?: number; length?: number; position?: unknown };
      const start = settings.offset ?? 0;
      return writeAt(file, contentOf(data).subarray(start, settings.length === undefined ? undefined : start + settings.length), settings.position);
    },
    fstatSync: (file) => new Stats(describe((opened.get(file) ?? descriptor(file, "reads")).path, "fstat")),
    ftruncateSync: (file, length) => truncate(descriptor(file, "writes").path, length),
    fsyncSync() {},
    fdatasyncSync() {},
  };
  const refuse = (name: string, reason: string) => (): never => {
    throw Object.assign(new Error(`EPERM: operation not permitted, ${name}: ${reason}`), { code: "EPERM" });
  };
  for (const name of REFUSED.split(" ")) operations[`${name}Sync`] = refuse(name, "files have no links, owners, modes or times to set");

  const promises: Exports = { constants };
  const fs: Exports = { constants, ...constants, Stats, Dirent, promises };
  for (const [name, action] of Object.entries(operations)) addOperation(fs, promises, name, action as Action);
  for (const name of STREAMS) fs[name] = refuse(name, "this engine has no streams: read and write whole files, or parts with `openSync` and `readSync`");
  promises.open = async (path: unknown, flags?: unknown) => {
    const file = operations.openSync!(path, flags) as number;
    const close = async (): Promise<void> => void operations.closeSync!(file);
    return {
      fd: file,
      close,
      [Symbol.asyncDispose]: close,
      readFile: async (options?: unknown) => operations.readFileSync!(file, options),
      writeFile: async (data: unknown, options?: unknown) => operations.writeFileSync!(file, data, options),
      appendFile: async (data: unknown, options?: unknown) => operations.appendFileSync!(file, data, options),
      stat: async () => operations.fstatSync!(file),
      truncate: async (length?: unknown) => operations.ftruncateSync!(file, length),
      sync: async () => {},
      datasync: async () => {},
      read: async (buffer: unknown = Buffer.alloc(16384), ...rest: unknown[]) => ({ bytesRead: operations.readSync!(file, buffer, ...rest), buffer }),
      write: async (buffer: unknown, ...rest: unknown[]) => ({ bytesWritten: operations.writeSync!(file, buffer, ...rest), buffer }),
    };
  };
  return fs;
}

/** Returns a flag of `open` as "r", "r+", "w", "wx", "a" or "ax". Numbers are combinations of `constants`. */
function flagOf(flags: unknown): string {
  if (typeof flags === "number") {
    const exclusive = flags & constants.O_EXCL ? "x" : "";
    if (flags & constants.O_APPEND) return `a${exclusive}`;
    if (flags & constants.O_TRUNC || exclusive) return `w${exclusive}`;
    return flags & constants.O_CREAT ? "a" : flags & 3 ? "r+" : "r";
  }
  const flag = `${flags}`.replace(/s/g, "");
  const match = /^(r\+?|[wa]x?\+?|x[wa]\+?|[wa]\+x)$/.exec(flag);
  if (match === null) throw Object.assign(new TypeError(`The argument 'flags' is invalid. Received '${flag}'`), { code: "ERR_INVALID_ARG_VALUE" });
  return flag[0] === "r" ? flag : `${/[wa]/.exec(flag)![0]}${flag.includes("x") ? "x" : ""}`;
}
