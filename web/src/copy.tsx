import { useEffect, useState } from "react";
import { Icon } from "./icon";

const SHOWN_MS = 1_500;

/** Button that copies a text. Browsers offer that to pages over HTTPS and of this machine only. */
export function Copy({ text, label }: { text: string; label: string }) {
  const [done, setDone] = useState(false);
  useEffect(() => {
    if (!done) return;
    const timer = setTimeout(() => setDone(false), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [done]);
  if (!navigator.clipboard) return null;
  return (
    <button
      type="button"
      className="quiet"
      aria-label={done ? "Copied" : label}
      title={done ? "Copied" : label}
      onClick={() => void navigator.clipboard.writeText(text).then(() => setDone(true))}
    >
      <Icon name={done ? "check" : "copy"} />
    </button>
  );
}
