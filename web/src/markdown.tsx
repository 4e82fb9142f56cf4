import type { ReactNode } from "react";

/** A few forms of Markdown as elements: paragraphs, lists, headings, code, emphasis. There is no HTML, and no link. */
export function Markdown({ text }: { text: string }) {
  const blocks: ReactNode[] = [];
  for (const [index, part] of text.split(/^```.*$/m).entries()) {
    if (index % 2 === 1) {
      blocks.push(
        <pre className="value" key={`code-${index}`}>
          {part.replace(/^\n|\n$/g, "")}
        </pre>,
      );
      continue;
    }
    for (const [place, block] of part.split(/\n{2,}/).entries()) {
      if (!block.trim()) continue;
      const key = `${index}-${place}`;
      const lines = block.trim().split("\n");
      if (lines.every((line) => /^\s*([-*]|\d+\.) /.test(line))) {
        blocks.push(
          <ul key={key}>
            {lines.map((line, row) => (
              <li key={row}>{inline(line.replace(/^\s*([-*]|\d+\.) /, ""))}</li>
            ))}
          </ul>,
        );
      } else {
        const heading = /^#{1,6} /.test(block.trim());
        blocks.push(
          <p key={key}>{heading ? <b>{inline(block.trim().replace(/^#+ /, ""))}</b> : inline(block.trim())}</p>,
        );
      }
    }
  }
  return <div className="text">{blocks}</div>;
}

function inline(text: string): ReactNode[] {
  return text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/).map((part, index) => {
    if (part.startsWith("`") && part.endsWith("`") && part.length > 2) return <code key={index}>{part.slice(1, -1)}</code>;
    if (part.startsWith("**") && part.length > 4) return <b key={index}>{part.slice(2, -2)}</b>;
    return part;
  });
}
