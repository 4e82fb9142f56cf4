// The parser of URLs that https://url.spec.whatwg.org specifies, and its percent-encoding. Hosts that are not ASCII are
// refused, because mapping them needs tables of Unicode.

export interface UrlRecord {
  scheme: string;
  username: string;
  password: string;
  host: string | null;
  port: string;
  /** Segments; a text if the path is opaque, as in `mailto:x`. */
  path: string[] | string;
  query: string | null;
  fragment: string | null;
}

const PORTS: Record<string, string> = { __proto__: null as never, "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21", "file:": "" };
const CONTROLS = /[^\x20-\x7e]/;
const FRAGMENT = /[^\x21\x23-\x3b\x3d\x3f-\x5f\x61-\x7e]/; // space " < > `
const QUERY = /[^\x21\x24-\x3b\x3d\x3f-\x7e]/; // space " # < >
const SPECIAL_QUERY = /[^\x21\x24-\x26\x28-\x3b\x3d\x3f-\x7e]/; // and '
const PATH = /[^\x21\x24-\x3b\x3d\x40-\x5f\x61-\x7a\x7c\x7e]/; // space " # < > ? ` { }, and not yet ^, like Deno
const USER = /[^\x21\x24-\x2e\x30-\x39\x41-\x5a\x5f\x61-\x7a\x7e]/; // and / : ; = @ [ \ ] ^ |
const FORM = /[^*\-.0-9A-Z_a-z]/;
const FORBIDDEN_HOST = /[\0\t\n\r #/:<>?@[\\\]^|]/;
const FORBIDDEN_DOMAIN = /[\0-\x20#%/:<>?@[\\\]^|\x7f]/;
const HEXADECIMAL = /^[0-9a-f]{2}$/i;
const encodings = new Map<number, string>();

export const isSpecial = (scheme: string): boolean => PORTS[scheme] !== undefined;

/** Encodes the characters that match `set` as UTF-8 in hexadecimal. */
export function percentEncode(text: string, set: RegExp): string {
  let encoded = "";
  for (const character of text) encoded += set.test(character) ? encodeCharacter(character) : character;
  return encoded;
}

function encodeCharacter(character: string): string {
  const code = character.codePointAt(0)!;
  let encoded = encodings.get(code);
  if (encoded === undefined) {
    encoded = code < 0x80 ? `%${code.toString(16).toUpperCase().padStart(2, "0")}` : encodeURIComponent(character.toWellFormed());
    if (encodings.size < 256) encodings.set(code, encoded);
  }
  return encoded;
}

/** Decodes `%XX`; returns the bytes as characters up to U+00FF. */
function percentBytes(text: string): string {
  let decoded = "";
  for (let index = 0; index < text.length; index++) {
    const digits = text.slice(index + 1, index + 3);
    if (text[index] === "%" && HEXADECIMAL.test(digits)) {
      decoded += String.fromCharCode(parseInt(digits, 16));
      index += 2;
    } else if (text[index]! > "\x7f") {
      const character = String.fromCodePoint(text.codePointAt(index)!);
      index += character.length - 1;
      decoded += percentBytes(encodeURIComponent(character.toWellFormed()));
    } else decoded += text[index];
  }
  return decoded;
}

/** Decodes bytes, as characters up to U+00FF, as UTF-8. */
function utf8(bytes: string): string {
  let text = "";
  for (let index = 0; index < bytes.length;) {
    const first = bytes.charCodeAt(index++);
    if (first < 0x80) {
      text += String.fromCharCode(first);
      continue;
    }
    let [left, least, most] = first >= 0xc2 && first < 0xe0 ? [1, 0x80, 0xbf] : first >= 0xe0 && first < 0xf0 ? [2, 0x80, 0xbf] : first >= 0xf0 && first < 0xf5 ? [3, 0x80, 0xbf] : [0, 0, 0];
    if (first === 0xe0) least = 0xa0;
    else if (first === 0xed) most = 0x9f;
    else if (first === 0xf0) least = 0x90;
    else if (first === 0xf4) most = 0x8f;
    let point = left === 0 ? 0xfffd : first & (0x3f >> left);
    for (; left > 0; left--) {
      const next = bytes.charCodeAt(index);
      if (!(next >= least && next <= most)) {
        point = 0xfffd;
        break;
      }
      [least, most] = [0x80, 0xbf];
      point = (point << 6) | (next & 0x3f);
      index++;
    }
    text += String.fromCodePoint(point);
  }
  return text;
}

/** Parses `application/x-www-form-urlencoded`. */
export function parseQuery(text: string): [string, string][] {
  const decode = (part: string): string => {
    const spaced = part.replaceAll("+", " ");
    return spaced.includes("%") ? utf8(percentBytes(spaced)) : spaced;
  };
  return text.split("&").filter((part) => part !== "").map((part) => {
    const at = part.indexOf("=");
    return at < 0 ? [decode(part), ""] : [decode(part.slice(0, at)), decode(part.slice(at + 1))];
  });
}

export function writeQuery(pairs: readonly (readonly [string, string])[]): string {
  const encode = (part: string): string => percentEncode(part, FORM).replaceAll("%20", "+");
  return pairs.map(([name, value]) => `${encode(name)}=${encode(value)}`).join("&");
}

class InvalidUrl extends Error {}

function invalid(): never {
  throw new InvalidUrl();
}

/** Parses a URL, relative to `base` if there is one; returns undefined if it is not valid. */
export function parseUrl(input: string, base?: UrlRecord): UrlRecord | undefined {
  try {
    return parsed(input.replace(/^[\0-\x20]+|[\0-\x20]+$/g, "").replace(/[\t\n\r]/g, ""), base);
  } catch (error) {
    if (error instanceof InvalidUrl) return undefined;
    throw error;
  }
}

function parsed(input: string, base: UrlRecord | undefined): UrlRecord {
  let rest = input;
  let fragment: string | null = null;
  const hash = rest.indexOf("#");
  if (hash >= 0) {
    fragment = percentEncode(rest.slice(hash + 1), FRAGMENT);
    rest = rest.slice(0, hash);
  }
  const match = /^([a-z][a-z0-9+.-]*):/i.exec(rest);
  if (match === null) {
    if (base === undefined) return invalid();
    return relative(rest, base, fragment, hash < 0 ? false : rest === "");
  }
  const scheme = `${match[1]!.toLowerCase()}:`;
  rest = rest.slice(match[0].length);
  const url: UrlRecord = { scheme, username: "", password: "", host: null, port: "", path: [], query: null, fragment };
  if (scheme === "file:") return file(rest, base?.scheme === "file:" ? base : undefined, url);
  if (isSpecial(scheme)) {
    if (base?.scheme === scheme && !/^[/\\]{2}/.test(rest)) return relative(rest, base, fragment, false);
    return authority(rest.replace(/^[/\\]*/, ""), url);
  }
  if (rest.startsWith("//")) return authority(rest.slice(2), url);
  if (rest.startsWith("/")) return pathAndQuery(rest, url);
  const [path, query] = splitQuery(rest);
  url.query = query === null ? null : percentEncode(query, QUERY);
  url.path = percentEncode(path, CONTROLS).replace(/ +$/, (spaces) => (query === null && fragment === null ? "" : `${spaces.slice(1)}%20`));
  return url;
}

function splitQuery(text: string): [string, string | null] {
  const at = text.indexOf("?");
  return at < 0 ? [text, null] : [text.slice(0, at), text.slice(at + 1)];
}

function relative(rest: string, base: UrlRecord, fragment: string | null, onlyFragment: boolean): UrlRecord {
  if (typeof base.path === "string") {
    if (!onlyFragment) return invalid();
    return { ...base, fragment };
  }
  if (base.scheme === "file:") return file(rest, base, { ...base, username: "", password: "", port: "", fragment });
  const special = isSpecial(base.scheme);
  const url: UrlRecord = { ...base, path: [...base.path], query: null, fragment };
  if (special ? /^[/\\]{2}/.test(rest) : rest.startsWith("//")) {
    return authority(special ? rest.replace(/^[/\\]*/, "") : rest.slice(2), { ...url, username: "", password: "", host: null, port: "", path: [] });
  }
  if (rest === "") return { ...url, query: base.query };
  if (rest.startsWith("/") || (special && rest.startsWith("\\"))) return pathAndQuery(rest, { ...url, path: [] });
  if (rest.startsWith("?")) return pathAndQuery(rest, url, url.path as string[]);
  return pathAndQuery(rest, url, (url.path as string[]).slice(0, -1));
}

const DRIVE = /^[a-z][:|]$/i;
const startsWithDrive = (text: string): boolean => /^[a-z][:|](?:[/\\?]|$)/i.test(text);

function file(rest: string, base: UrlRecord | undefined, url: UrlRecord): UrlRecord {
  url.host = "";
  url.path = [];
  url.query = null;
  if (/^[/\\]{2}/.test(rest)) {
    rest = rest.slice(2);
    const end = rest.search(/[/\\?]/);
    const host = end < 0 ? rest : rest.slice(0, end);
    if (DRIVE.test(host)) return pathAndQuery(rest, url);
    const name = host === "" ? "" : parseHost(host, true);
    url.host = name === "localhost" ? "" : name;
    return pathAndQuery(end < 0 ? "" : rest.slice(end), url);
  }
  if (/^[/\\]/.test(rest)) {
    if (base !== undefined) {
      url.host = base.host;
      const first = (base.path as string[])[0];
      if (!startsWithDrive(rest.slice(1)) && first !== undefined && /^[a-z]:$/i.test(first)) return pathAndQuery(rest, url, [first]);
    }
    return pathAndQuery(rest, url);
  }
  if (base === undefined) return pathAndQuery(rest, url);
  url.host = base.host;
  const path = base.path as string[];
  if (rest === "") return { ...url, path: [...path], query: base.query };
  if (rest.startsWith("?")) return pathAndQuery(rest, url, [...path]);
  return startsWithDrive(rest) ? pathAndQuery(rest, url) : pathAndQuery(rest, url, shortened([...path], "file:"));
}

function authority(rest: string, url: UrlRecord): UrlRecord {
  const special = isSpecial(url.scheme);
  const end = rest.search(special ? /[/\\?]/ : /[/?]/);
  let host = end < 0 ? rest : rest.slice(0, end);
  const at = host.lastIndexOf("@");
  if (at >= 0) {
    const user = host.slice(0, at);
    host = host.slice(at + 1);
    if (host === "") invalid();
    const colon = user.indexOf(":");
    url.username = percentEncode(colon < 0 ? user : user.slice(0, colon), USER);
    url.password = colon < 0 ? "" : percentEncode(user.slice(colon + 1), USER);
  }
  const port = /:([^:\]]*)$/.exec(host);
  if (port !== null && !(host.startsWith("[") && !host.includes("]"))) {
    url.port = parsePort(port[1]!, url.scheme);
    host = host.slice(0, port.index);
    if (host === "") invalid();
  }
  if (host === "" && special) invalid();
  url.host = parseHost(host, special);
  return pathAndQuery(end < 0 ? "" : rest.slice(end), url);
}

function parsePort(digits: string, scheme: string): string {
  if (digits === "") return "";
  if (!/^\d+$/.test(digits) || +digits > 65535) invalid();
  return `${+digits}` === PORTS[scheme] ? "" : `${+digits}`;
}

function pathAndQuery(rest: string, url: UrlRecord, path: string[] = []): UrlRecord {
  const special = isSpecial(url.scheme);
  const [text, query] = splitQuery(rest);
  url.query = query === null ? null : percentEncode(query, special ? SPECIAL_QUERY : QUERY);
  url.path = text === "" && (!special || path.length > 0) ? path : segments(text, path, url.scheme);
  return url;
}

function segments(text: string, path: string[], scheme: string): string[] {
  const parts = (isSpecial(scheme) ? text.replaceAll("\\", "/") : text).split("/");
  if (parts[0] === "" && text !== "") parts.shift();
  parts.forEach((part, index) => {
    const last = index === parts.length - 1;
    const plain = part.toLowerCase().replaceAll("%2e", ".");
    if (plain === "..") {
      shortened(path, scheme);
      if (last) path.push("");
    } else if (plain === ".") {
      if (last) path.push("");
    } else {
      if (scheme === "file:" && path.length === 0 && DRIVE.test(part)) part = `${part[0]}:`;
      path.push(percentEncode(part, PATH));
    }
  });
  return path;
}

function shortened(path: string[], scheme: string): string[] {
  if (!(scheme === "file:" && path.length === 1 && /^[a-z]:$/i.test(path[0]!))) path.pop();
  return path;
}

function parseHost(text: string, special: boolean): string {
  if (text.startsWith("[")) return text.endsWith("]") ? `[${parseIPv6(text.slice(1, -1))}]` : invalid();
  if (!special) return FORBIDDEN_HOST.test(text) ? invalid() : percentEncode(text, CONTROLS);
  const domain = utf8(percentBytes(text)).toLowerCase();
  if (/[^\0-\x7f]/.test(domain)) {
    throw new TypeError(`Invalid URL: the host ${JSON.stringify(text)} is not ASCII, and this engine has no tables for it; write it in Punycode (xn--...)`);
  }
  if (domain === "" || FORBIDDEN_DOMAIN.test(domain)) invalid();
  const parts = domain.split(".");
  if (parts.at(-1) === "" && parts.length > 1) parts.pop();
  return /^(?:\d+|0x[0-9a-f]*)$/.test(parts.at(-1)!) ? parseIPv4(parts) : domain;
}

function parseIPv4(parts: string[]): string {
  if (parts.length > 4) invalid();
  const numbers = parts.map((part) => {
    if (part === "") return invalid();
    const [digits, radix] = part.startsWith("0x") ? [part.slice(2), 16] : part.length > 1 && part.startsWith("0") ? [part.slice(1), 8] : [part, 10];
    if (digits === "") return 0;
    return { 8: /^[0-7]+$/, 10: /^\d+$/, 16: /^[0-9a-f]+$/ }[radix]!.test(digits) ? parseInt(digits, radix) : invalid();
  });
  const last = numbers.pop()!;
  if (numbers.some((number) => number > 255) || last >= 256 ** (4 - numbers.length)) invalid();
  const address = numbers.reduce((sum, number, index) => sum + number * 256 ** (3 - index), last);
  return [24, 16, 8, 0].map((shift) => Math.floor(address / 2 ** shift) % 256).join(".");
}

function parseIPv6(text: string): string {
  const [head, tail, ...more] = text.split("::");
  if (more.length > 0) invalid();
  const pieces = (part: string | undefined): number[] => (part === undefined || part === "" ? [] : part.split(":").flatMap((piece, index, all) => {
    if (piece.includes(".") && index === all.length - 1) {
      const numbers = piece.split(".");
      if (numbers.length !== 4 || numbers.some((number) => !/^(?:0|[1-9]\d{0,2})$/.test(number) || +number > 255)) invalid();
      return [+numbers[0]! * 256 + +numbers[1]!, +numbers[2]! * 256 + +numbers[3]!];
    }
    return /^[0-9a-f]{1,4}$/i.test(piece) ? [parseInt(piece, 16)] : invalid();
  }));
  const first = pieces(head);
  const last = pieces(tail);
  const missing = 8 - first.length - last.length;
  if (tail === undefined ? missing !== 0 : missing < 1) invalid();
  if (tail !== undefined && head!.includes(".")) invalid();
  const address = [...first, ...Array<number>(tail === undefined ? 0 : missing).fill(0), ...last];
  let [start, length] = [-1, 1];
  for (let index = 0; index < 8; index++) {
    let run = 0;
    while (address[index + run] === 0) run++;
    if (run > length) [start, length] = [index, run];
    index += run;
  }
  let written = "";
  for (let index = 0; index < 8; index++) {
    if (index === start) {
      written += index === 0 ? "::" : ":";
      index += length - 1;
    } else written += `${address[index]!.toString(16)}${index < 7 ? ":" : ""}`;
  }
  return written;
}

export const pathOf = ({ path }: UrlRecord): string => (typeof path === "string" ? path : path.map((segment) => `/${segment}`).join(""));

export const hostOf = ({ host, port }: UrlRecord): string => (host === null ? "" : port === "" ? host : `${host}:${port}`);

export function hrefOf(url: UrlRecord): string {
  const { scheme, username, password, host, path, query, fragment } = url;
  const user = username === "" && password === "" ? "" : `${username}${password === "" ? "" : `:${password}`}@`;
  const before = host !== null ? `//${user}${hostOf(url)}` : typeof path !== "string" && path.length > 1 && path[0] === "" ? "/." : "";
  return `${scheme}${before}${pathOf(url)}${query === null ? "" : `?${query}`}${fragment === null ? "" : `#${fragment}`}`;
}

export function originOf(url: UrlRecord): string {
  const { scheme, path } = url;
  if (scheme === "blob:" && typeof path === "string") {
    const inner = parseUrl(path);
    return inner !== undefined && /^https?:$/.test(inner.scheme) ? originOf(inner) : "null";
  }
  return isSpecial(scheme) && scheme !== "file:" ? `${scheme}//${hostOf(url)}` : "null";
}

/** Changes one part of a URL, as its setter does. A value that is not valid has no effect. */
export function changeUrl(url: UrlRecord, member: string, value: string): UrlRecord {
  const special = isSpecial(url.scheme);
  const opaque = typeof url.path === "string";
  const withoutUser = url.host === null || url.host === "" || url.scheme === "file:";
  const clean = value.replace(/[\t\n\r]/g, "");
  try {
    switch (member) {
      case "protocol": {
        const scheme = /^([a-z][a-z0-9+.-]*)(?::|$)/i.exec(clean);
        if (scheme === null) return url;
        const name = `${scheme[1]!.toLowerCase()}:`;
        if (isSpecial(name) !== special) return url;
        if (name === "file:" && (url.username !== "" || url.password !== "" || url.port !== "")) return url;
        if (url.scheme === "file:" && url.host === "") return url;
        return { ...url, scheme: name, port: url.port === PORTS[name] ? "" : url.port };
      }
      case "username":
        return withoutUser ? url : { ...url, username: percentEncode(value, USER) };
      case "password":
        return withoutUser ? url : { ...url, password: percentEncode(value, USER) };
      case "host":
      case "hostname": {
        if (opaque) return url;
        const end = clean.search(special ? /[/\\?#]/ : /[/?#]/);
        const text = end < 0 ? clean : clean.slice(0, end);
        const bracket = text.lastIndexOf("]");
        const colon = text.indexOf(":", bracket < 0 ? 0 : bracket);
        const name = colon < 0 ? text : text.slice(0, colon);
        if (colon >= 0 && (member === "hostname" || name === "")) return url;
        if (name === "" && (special ? url.scheme !== "file:" : url.username !== "" || url.password !== "" || url.port !== "")) return url;
        const host = name === "" ? "" : parseHost(name, special);
        const digits = colon < 0 ? null : /^\d+/.exec(text.slice(colon + 1));
        const port = digits === null || +digits[0] > 65535 ? url.port : parsePort(digits[0], url.scheme);
        return { ...url, host: url.scheme === "file:" && host === "localhost" ? "" : host, port: url.scheme === "file:" ? "" : port };
      }
      case "port": {
        if (withoutUser) return url;
        const digits = /^\d+/.exec(clean);
        if (clean === "") return { ...url, port: "" };
        return digits === null ? url : { ...url, port: parsePort(digits[0], url.scheme) };
      }
      case "pathname": {
        if (opaque) return url;
        const text = clean.replace(/[?#]/g, (character) => (character === "?" ? "%3F" : "%23"));
        return { ...url, path: segments(text, [], url.scheme) };
      }
      case "search": {
        if (value === "") return { ...url, query: null };
        return { ...url, query: percentEncode(clean.replace(/^\?/, ""), special ? SPECIAL_QUERY : QUERY) };
      }
      case "hash": {
        if (value === "") return { ...url, fragment: null };
        return { ...url, fragment: percentEncode(clean.replace(/^#/, ""), FRAGMENT) };
      }
      default:
        return url;
    }
  } catch (error) {
    if (error instanceof InvalidUrl) return url;
    throw error;
  }
}
