// What is evaluated in the realm's context, as scripts. `guest/runtime.py` writes this module.

/** A function of the engine's TextEncoder that gives `openRealm`: realm.ts and all that it imports. */
export const REALM: string = "";
/** The class `Faces`: platform.ts and all that it imports. */
export const PLATFORM: string = "";
