"""What many streams show together: tables for the terminal, and one page that works offline. It reads no journal."""
