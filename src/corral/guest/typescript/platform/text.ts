// Text and bytes: TextEncoder, TextDecoder, atob and btoa.

import { ask, dictionary, DOMException, enumerable, need, tag } from "./base.ts";
import { bytesOf } from "./intrinsics.ts";

const Bytes = Uint8Array;

/** Encodes a string as UTF-8. */
export function encodeText(text: string): Uint8Array<ArrayBuffer> {
  const bytes = new Bytes(text.length * 3);
  let size = 0;
  for (let index = 0; index < text.length; index++) {
    let point = text.codePointAt(index)!;
    if (point > 0xffff) index++;
    else if (point >= 0xd800 && point < 0xe000) point = 0xfffd; // half of a pair
    if (point < 0x80) {
      bytes[size++] = point;
      continue;
    }
    const more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    bytes[size++] = ((0xff00 >> (more + 1)) & 0xff) | (point >> (6 * more));
    for (let left = more - 1; left >= 0; left--) bytes[size++] = 0x80 | ((point >> (6 * left)) & 0x3f);
  }
  return bytes.slice(0, size);
}

/** Decodes each byte as the character of its number. */
export function latin1(bytes: Uint8Array): string {
  let text = "";
  for (const byte of bytes) text += String.fromCharCode(byte);
  return text;
}

export class TextEncoder {
  #ours = true;

  get encoding(): string {
    return this.#ours ? "utf-8" : "";
  }

  encode(text: unknown = ""): Uint8Array {
    void this.#ours;
    return encodeText(`${text}`);
  }

  encodeInto(source: unknown, target: unknown): { read: number; written: number } {
    void this.#ours;
    const bytes = bytesOf(target);
    if (bytes === undefined || !(target instanceof Uint8Array)) throw new TypeError("Failed to execute 'encodeInto' on 'TextEncoder': Argument 2 is not a Uint8Array");
    const text = `${source}`;
    let read = 0;
    let written = 0;
    while (read < text.length) {
      const point = text.codePointAt(read)!;
      const size = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;
      if (written + size > bytes.length) break;
      written += size;
      read += point > 0xffff ? 2 : 1;
    }
    bytes.set(encodeText(text.slice(0, read)));
    return { read, written };
  }
}
tag(TextEncoder);
enumerable(TextEncoder);

export class TextDecoder {
  #encoding: string;
  #fatal: boolean;
  #ignoreBOM: boolean;
  /** Bytes of an incomplete character, in base64. */
  #kept = "";
  #started = false;

  constructor(label: unknown = "utf-8", options?: unknown) {
    const { fatal, ignoreBOM } = dictionary(options);
    this.#fatal = !!fatal;
    this.#ignoreBOM = !!ignoreBOM;
    this.#encoding = ask("encoding", `${label}`);
  }

  get encoding(): string {
    return this.#encoding;
  }

  get fatal(): boolean {
    return this.#fatal;
  }

  get ignoreBOM(): boolean {
    return this.#ignoreBOM;
  }

  decode(input: unknown = new Bytes(0), options?: unknown): string {
    const bytes = bytesOf(input);
    if (bytes === undefined) throw new TypeError("Failed to execute 'decode' on 'TextDecoder': Argument 1 is not an ArrayBuffer or a view on one");
    const stream = !!dictionary(options).stream;
    const kept = this.#kept;
    this.#kept = "";
    const [text, rest] = ask<[string, string]>("decode", this.#encoding, this.#fatal, kept, bytes.toBase64(), stream);
    const first = !this.#started && text !== "";
    this.#kept = rest;
    this.#started = stream && (this.#started || first);
    return first && !this.#ignoreBOM && text.startsWith("\ufeff") ? text.slice(1) : text;
  }
}
tag(TextDecoder);
enumerable(TextDecoder);

export const decodeUtf8 = (bytes: Uint8Array): string => new TextDecoder().decode(bytes);

export function atob(text: unknown): string {
  need("Failed to execute 'atob'", arguments, 1);
  try {
    return latin1(Bytes.fromBase64(`${text}`));
  } catch {
    throw new DOMException("Failed to decode base64", "InvalidCharacterError");
  }
}

export function btoa(text: unknown): string {
  need("Failed to execute 'btoa'", arguments, 1);
  const bytes = Bytes.from(`${text}`, (character) => {
    if (character > "\xff") throw new DOMException("The string to be encoded contains characters outside of the Latin1 range.", "InvalidCharacterError");
    return character.charCodeAt(0);
  });
  return bytes.toBase64();
}
