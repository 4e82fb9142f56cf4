/** Worker that colours code: compiling a grammar takes longer than a frame. */

import { createHighlighterCore } from "shiki/core";
import { createJavaScriptRegexEngine } from "shiki/engine/javascript";
import python from "shiki/langs/python.mjs";
import typescript from "shiki/langs/typescript.mjs";
import dark from "shiki/themes/github-dark-high-contrast.mjs";
import light from "shiki/themes/github-light-high-contrast.mjs";

const making = createHighlighterCore({
  langs: [typescript, python],
  themes: [light, dark],
  engine: createJavaScriptRegexEngine(),
});

addEventListener("message", async ({ data }: MessageEvent<{ id: number; code: string; language: string }>) => {
  const made = await making;
  const found = made.codeToTokensWithThemes(data.code, {
    lang: data.language === "python" ? "python" : "typescript",
    themes: { light: "github-light-high-contrast", dark: "github-dark-high-contrast" },
  });
  const lines = found.map((line) =>
    line.map(({ content, variants }) => ({
      content,
      light: variants.light?.color ?? "",
      dark: variants.dark?.color ?? "",
    })),
  );
  postMessage({ id: data.id, lines });
});
