from attnbook.run.command import main

raise SystemExit(main())
