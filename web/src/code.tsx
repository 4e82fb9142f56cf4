import { memo, useEffect, useRef, useState } from "react";
import { Copy } from "./copy";

export interface Token {
  content: string;
  light: string;
  dark: string;
}

let worker: Worker | undefined;
let asked = 0;
const waiting = new Map<number, (lines: Token[][]) => void>();

/** Has a worker colour the code. It starts after the first paint: code is readable without colours. */
function coloured(code: string, language: string): Promise<Token[][]> {
  if (!worker) {
    worker = new Worker(new URL("./highlighter.ts", import.meta.url), { type: "module" });
    worker.addEventListener("message", ({ data }: MessageEvent<{ id: number; lines: Token[][] }>) => {
      waiting.get(data.id)?.(data.lines);
      waiting.delete(data.id);
    });
  }
  const id = (asked += 1);
  worker.postMessage({ id, code, language });
  return new Promise((resolve) => waiting.set(id, resolve));
}

/** Lines of code; those that have changed since they were coloured are plain. */
function useLines(code: string, language: string | undefined): Token[][] {
  const text = code.replace(/\n$/, "");
  const [known, setKnown] = useState<Token[][]>([]);
  useEffect(() => {
    if (!text || !language || text.length > LONGEST) return;
    let shown = true;
    void coloured(text, language).then((lines) => shown && setKnown(lines));
    return () => void (shown = false);
  }, [text, language]);
  return text.split("\n").map((content, index) => {
    const line = known[index];
    return line && line.map((token) => token.content).join("") === content ? line : [{ content, light: "", dark: "" }];
  });
}

const LONGEST = 20_000;
const FOLDED_LINES = 20;

interface Props {
  code: string;
  language?: "typescript" | "python";
  label: string;
  failed?: { line: number; message: string };
  marks?: Map<number, string>;
  grows?: boolean;
  bare?: boolean;
}

/** Code with line numbers, unless it is bare; long code is folded. Every token is a text node. */
export const Code = memo(function Code({ code, language, label, failed, marks, grows, bare }: Props) {
  const lines = useLines(code, language);
  const [unfolded, setUnfolded] = useState(false);
  const area = useRef<HTMLDivElement>(null);
  const isLong = lines.length > FOLDED_LINES;
  const seen = failed?.line ?? marks?.keys().next().value;
  useEffect(() => {
    const hit = area.current?.children[(seen ?? 0) - 1] as HTMLElement | undefined;
    if (area.current && hit) area.current.scrollTop = hit.offsetTop - area.current.clientHeight / 2;
  }, [seen]);
  useEffect(() => {
    if (grows && area.current) area.current.scrollTop = area.current.scrollHeight;
  }, [grows, code]);
  return (
    <div className={bare ? "listing bare" : "listing"}>
      <div className={unfolded ? "code" : "code folded"} role="group" aria-label={label} tabIndex={0} ref={area}>
        {lines.map((line, index) => {
          const hit = failed?.line === index + 1;
          const mark = hit ? failed.message : marks?.get(index + 1);
          return (
            <div key={index}>
              <div className={hit ? "line hit" : mark ? "line marked" : "line"}>
                {!bare && (
                  <span className="number" aria-hidden="true">
                    {index + 1}
                  </span>
                )}
                <code>
                  {line.map((token, place) => (
                    <span key={place} ref={(node) => paint(node, token.light, token.dark)}>
                      {token.content}
                    </span>
                  ))}
                </code>
              </div>
              {mark && (
                <div className="why" role={hit ? "alert" : undefined}>
                  {mark}
                </div>
              )}
            </div>
          );
        })}
      </div>
      <div className={isLong ? "tools always" : "tools"}>
        {isLong && (
          <button type="button" className="quiet" aria-expanded={unfolded} onClick={() => setUnfolded(!unfolded)}>
            {unfolded ? "Fold" : `Show ${lines.length} lines`}
          </button>
        )}
        <Copy text={code} label={`Copy ${label.toLowerCase()}`} />
      </div>
    </div>
  );
});

/** Sets colours by the style object, which the content security policy allows. */
function paint(node: HTMLElement | null, light: string, dark: string) {
  if (!node || !light) return;
  node.style.setProperty("--light", light);
  node.style.setProperty("--dark", dark);
}
