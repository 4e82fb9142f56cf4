import { memo, useEffect, useMemo, useState } from "react";
import type { HighlighterCore } from "shiki/core";

let loading: Promise<HighlighterCore> | undefined;

/** Loads the highlighter after the first paint: code is readable without it. */
function highlighter(): Promise<HighlighterCore> {
  loading ??= import("./highlighter").then((module) => module.create());
  return loading;
}

const LONGEST = 20_000;

interface Props {
  code: string;
  language: string;
  failed?: { line: number; message: string };
  marks?: Map<number, string>;
}

/** Code with line numbers. Every token is a text node. */
export const Code = memo(function Code({ code, language, failed, marks }: Props) {
  const [ready, setReady] = useState<HighlighterCore>();
  useEffect(() => {
    let shown = true;
    highlighter().then((made) => shown && setReady(made));
    return () => void (shown = false);
  }, []);
  const lines = useMemo(() => {
    const text = code.replace(/\n$/, "");
    if (!ready || text.length > LONGEST) return text.split("\n").map((content) => [{ content, light: "", dark: "" }]);
    const found = ready.codeToTokensWithThemes(text, {
      lang: language === "python" ? "python" : "typescript",
      themes: { light: "github-light", dark: "github-dark" },
    });
    return found.map((line) =>
      line.map((token) => ({
        content: token.content,
        light: token.variants.light?.color ?? "",
        dark: token.variants.dark?.color ?? "",
      })),
    );
  }, [ready, code, language]);
  return (
    <div className="code" role="region" aria-label="Program" tabIndex={0}>
      {lines.map((line, index) => {
        const hit = failed?.line === index + 1;
        const mark = hit ? failed.message : marks?.get(index + 1);
        return (
          <div key={index}>
            <div className={hit ? "line hit" : mark ? "line marked" : "line"}>
              <span className="number" aria-hidden="true">
                {index + 1}
              </span>
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
  );
});

/** Sets colours by the style object, which the content security policy allows. */
function paint(node: HTMLElement | null, light: string, dark: string) {
  if (!node || !light) return;
  node.style.setProperty("--light", light);
  node.style.setProperty("--dark", dark);
}
